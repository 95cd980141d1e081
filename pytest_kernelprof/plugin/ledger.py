"""What a test took, and what follows from it: ``Ledger`` keeps, ``conclude`` decides."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from _pytest.outcomes import OutcomeException
from msgspec.structs import replace

from pytest_kernelprof.analysis.profile import unmeasured
from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.measure.completeness import incomplete_words
from pytest_kernelprof.report.failure import failure_message
from pytest_kernelprof.report.words import doubt_words, integrity_words, verdict_line
from pytest_kernelprof.schema import run
from pytest_kernelprof.schema.metrics import METRICS
from pytest_kernelprof.schema.recording import NOTHING_NOTED, DeviceKind, Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_kernelprof.capture.session import TraceFile
    from pytest_kernelprof.limits.kinds import Key, Limit
    from pytest_kernelprof.limits.marks import Marks
    from pytest_kernelprof.measure.runner import Measurement

MOST_KERNELS = 100_000
"""Kernels (and operators, copies, waits) that are kept of a test: those of its newest profiles."""

MOST_TRACES = 100
"""Trace files that are kept of a test, for ``save_trace``: those of its newest profiles."""

_NO_KERNELS = (
    "the kernels of this profile are kept no more: of a test's profiles only the newest have them, "
    f"up to {MOST_KERNELS:,} in all; look at kernel_profile.last right after the call"
)
_NO_TRACE = (
    f"the trace of this profile is kept no more: only the newest {MOST_TRACES} of a test are; save "
    "it right after the call, or write all with --kernelprof-trace-dir=DIR"
)


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What the test asked to have measured, and was not measured to its end.

    Attributes:
        what: which region, call or comparison.
        limits: what was to be judged by it.
        remedy: what to do where something is expected to be raised.
        raised: the kind of exception that ended it, which the test has caught; empty for a region
            that was never entered or left.
    """

    what: str
    limits: tuple[str, ...] = ()
    remedy: str = ""
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """What a test took since it was last judged: all that ``conclude`` looks at.

    Attributes:
        profiles: with their verdicts.
        profiled: whether the test has profiled anything, then or before.
        compared: whether it has compared anything.
        disabled: whether the run profiles nothing (--kernelprof-disable), and the test asked.
        limits: the names of the limits that stand on the test.
        unmeasured: what was not measured to its end.
        unheld: the limits that compare and were not judged.
        broken: the messages of comparisons that are over their limit.
        notes: what is to be warned of, besides the verdicts.
        undecided: what a verdict does that is not reached: "warn", "fail" or "pass".
        asked: whether the test asks for numbers. Of one that does not (--kernelprof-all), a number
            that could not be had is told in its row alone.
    """

    profiles: tuple[run.Profile, ...] = ()
    profiled: bool = False
    compared: bool = False
    disabled: bool = False
    limits: tuple[str, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    unheld: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: str = "warn"
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What becomes of a test: of the first three at most one has words.

    Attributes:
        failure: a limit is broken. error: a number could not be had. skip: nothing applies here.
        warnings: what the user should know all the same.
        place: of a failure, the line of the test that made the call, where there is one.
    """

    failure: str = ""
    error: str = ""
    skip: str = ""
    warnings: tuple[str, ...] = ()
    place: run.Place | None = None


def conclude(records: Records) -> Conclusion:
    """What follows from what a test took. A violated limit comes first: it is certain, whatever
    else could not be had."""
    failing = {"over", "undecided"} if records.undecided == "fail" else {"over"}
    over = [
        profile
        for profile in records.profiles
        if any(verdict.outcome in failing for verdict in profile.verdicts)
    ]
    broken = [*map(failure_message, over), *records.broken]
    if broken:
        place = over[0].place if over else None
        return Conclusion(failure="\n".join(broken), place=place)
    error = _nothing_measured(records) or _not_judged(records)
    if error:
        return Conclusion(error=error)
    skip = "" if records.compared else _none_applies(records.profiles)
    if skip:
        return Conclusion(skip=skip)
    error = next(filter(None, map(_could_not_be_had, records.profiles)), "")
    if error and (records.asked or records.limits):
        return Conclusion(error=error)
    return Conclusion(warnings=(*_warnings(records), *records.notes))


def _nothing_measured(records: Records) -> str:
    if records.profiled or records.compared or records.disabled or not records.asked:
        return ""
    if records.unmeasured:
        return f"the test profiled nothing: {_ended_early(records.unmeasured[0])}"
    return (
        "the test asks for kernel_profile but profiled nothing: call kernel_profile(fn, *args), "
        "use kernel_profile.region(...), or drop the fixture"
    )


def _not_judged(records: Records) -> str:
    """A limit about nothing would pass."""
    if records.disabled:
        return ""
    for one in records.unmeasured:
        if one.limits:
            return f"{', '.join(one.limits)} was not judged: {_ended_early(one)}"
    if records.limits and not records.profiled:
        return (
            f"{', '.join(records.limits)} was not judged: the test only compares, and a "
            "comparison's profiles are exempt from limits; call kernel_profile(fn, *args) for what "
            "the limit is about"
        )
    if records.unheld:
        return (
            f"{', '.join(records.unheld)} was not judged: it compares what is handed to "
            "kernel_profile(fn, *args), and nothing was; compare in the test, "
            "kernel_profile.compare(f, g, *args), or hand it over"
        )
    return ""


def _ended_early(one: Unmeasured) -> str:
    raised = f" ({one.raised} was raised)" if one.raised else ""
    return f"{one.what} was not measured to its end{raised}; {one.remedy}"


def _none_applies(profiles: Sequence[run.Profile]) -> str:
    """As a test skips whose markers need a GPU: its limits came as it ran."""
    verdicts = [verdict for profile in profiles for verdict in profile.verdicts]
    if not verdicts or any(verdict.outcome != "not judged" for verdict in verdicts):
        return ""
    names = ", ".join(dict.fromkeys(verdict.limit for verdict in verdicts))
    return f"not applicable on the CPU: {names}"


def _could_not_be_had(profile: run.Profile) -> str:
    incomplete = [one for one in profile.verdicts if one.outcome == "incomplete"]
    return incomplete_words(profile) or "; ".join(map(verdict_line, incomplete))


def _warnings(records: Records) -> list[str]:
    profiles = records.profiles
    told = [
        f"the code never became warm: {integrity_words(profile)}"
        for profile in profiles
        if not profile.integrity.settled and not profile.one_shot
    ]
    timed = [profile for profile in profiles if any(map(_is_timed, profile.verdicts))]
    told += [in_place_words(profile.in_place) for profile in timed if profile.in_place]
    told += [_unstable_words(profile) for profile in timed if not profile.metrics["kernels"].stable]
    if records.undecided != "pass":
        told += [
            verdict_line(verdict, doubt_words(profile.conditions))
            for profile in profiles
            for verdict in profile.verdicts
            if verdict.outcome == "undecided"
        ]
    return told


def _is_timed(verdict: run.Verdict) -> bool:
    return verdict.metric in METRICS and METRICS[verdict.metric].kind == "timed"


def _unstable_words(profile: run.Profile) -> str:
    counts = profile.metrics["kernels"].rounds
    return (
        f"UNSTABLE: the code launches {min(counts):.0f} to {max(counts):.0f} kernels a call, so "
        "its times are those of different work"
    )


def in_place_words(names: Sequence[str]) -> str:
    """The warning that rounds had different inputs."""
    return (
        f"the code changes {', '.join(names)} in place, so each round has other inputs: give fresh "
        "ones, kernel_profile.run(fn, setup=make_arguments)"
    )


@dataclass(slots=True)
class _Entry:
    """A measurement that is kept.

    Attributes:
        record: the profile with its verdicts. limits: what these are by, one by one.
        own: the limits given to it alone.
        recording, file: of its trace, as long as that is kept.
        whole: whether the record has its kernels still.
        shown: the profile as users see it, one object as long as nothing of it is dropped.
    """

    record: run.Profile
    limits: tuple[Limit, ...]
    own: dict[Key, Limit]
    recording: Recording
    file: TraceFile | None
    whole: bool = True
    shown: Profile | None = None

    @property
    def size(self) -> int:
        """Kernels, copies and waits that it holds."""
        record = self.record
        several = (record.kernels, *record.variants, record.copies, record.waits)
        return sum(len(one) for one in several)

    def profile(self) -> Profile:
        """The profile as users see it."""
        if self.shown is None:
            self.shown = Profile(
                self.record,
                trace=self.file.path if self.file else "",
                recording=self.recording,
                keeps=self.file,
                no_kernels="" if self.whole else _NO_KERNELS,
                no_trace="" if self.file else _NO_TRACE,
            )
        return self.shown

    def drop_kernels(self) -> None:
        self.shown = None
        self.record = replace(self.record, kernels=(), variants=(), copies=(), waits=())
        self.whole = False

    def drop_trace(self) -> None:
        self.shown = None
        self.file, self.recording = None, NOTHING_NOTED


@dataclass(slots=True, eq=False)
class Asked:
    """A measurement that the test asked for and that is not kept yet.

    Attributes:
        what, remedy: as of ``Unmeasured``.
        own: limits of it alone, beside those of the test.
        compares: whether the test's limits that compare are about it, too.
        instead: what is to be judged by it in place of limits.
        raised: the kind of exception that has ended it.
    """

    what: str
    remedy: str
    own: dict[Key, Limit] = field(default_factory=dict)
    compares: bool = False
    instead: str = ""
    raised: str = ""


class Ledger:
    """The limits of one test, and all that it took.

    Attributes:
        compared: whether anything was compared.
        ran_disabled: whether anything was asked to be profiled in a run that profiles nothing.
        comparisons: what gives the records of comparisons that no report has yet.
        broken: the messages of comparisons over their limit, which no conclusion has told yet.
        notes: what a conclusion is to warn of, besides the verdicts.
        unsaved: why traces were not written that should have been.
    """

    def __init__(self, marks: Marks, undecided: str, *, asked: bool = True) -> None:
        self._marked: dict[Key, Limit] = {}
        self._set: dict[Key, Limit] = {}
        self._comparing: dict[Key, Limit] = {}
        self._undecided = undecided
        self._wants_numbers = asked
        self._entries: list[_Entry] = []
        self._concluded = self._dismissed = 0
        self._reported = 0
        self._closed = False
        self._held: set[tuple[Key, float]] = set()
        self._kernels = 0
        self._first_whole = 0
        self.compared = False
        self.ran_disabled = False
        self.comparisons: list[Callable[[], run.Comparison]] = []
        self.broken: list[str] = []
        self.notes: list[str] = []
        self.unsaved: list[str] = []
        self._asked: dict[Asked, None] = {}
        self.mark(marks)

    def mark(self, marks: Marks) -> None:
        """Judge by what the markers of the test say by now, where nothing else was set."""
        self._marked = {limit.key: limit for limit in marks.limits}
        self._comparing = {limit.key: limit for limit in marks.comparisons}

    def set_limit(self, limit: Limit) -> None:
        """Judge by this in place of any of the same key, also what was judged already."""
        self._refuse_late()
        self._set[limit.key] = limit
        self._concluded = self._dismissed

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What every profile of the test is judged by."""
        return self._limits_with({})

    @property
    def comparing(self) -> tuple[Limit, ...]:
        """What is compared with each callable that the test hands over."""
        return tuple(self._comparing.values())

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles so far, in order."""
        return tuple(entry.profile() for entry in self._entries)

    @property
    def last(self) -> Profile | None:
        """The newest profile, if there is one."""
        return self._entries[-1].profile() if self._entries else None

    def __len__(self) -> int:
        return len(self._entries)

    def ask(self, asked: Asked) -> None:
        """Note that something is to be measured: what it is judged by is not judged before.

        Raises:
            IncompleteProfile: nothing is judged any more.
        """
        self._refuse_late()
        self._asked[asked] = None

    @contextlib.contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """The same until the block has ended well. A test may catch what is raised there; the
        conclusion does not."""
        self.ask(asked)
        try:
            yield
        except GeneratorExit:  # left open: Python ends it when nobody holds it any more
            raise
        except BaseException as error:
            asked.raised = type(error).__name__
            raise
        self._asked.pop(asked, None)

    def keep(
        self,
        measurement: Measurement,
        own: dict[Key, Limit] | None = None,
        place: run.Place | None = None,
    ) -> Profile:
        """Judge a measurement and keep it; if a limit is over, learn the source lines while the
        arguments live."""
        limits = self._limits_with(own or {})
        verdicts = evaluate(measurement.profile, limits, place)
        record = measurement.profile
        if measurement.attribute and any(verdict.outcome == "over" for verdict in verdicts):
            # The verdict stands without lines: an error of the extra run must not hide it.
            with contextlib.suppress(Exception, OutcomeException):
                record = measurement.attribute()
        record = replace(record, verdicts=verdicts, place=place)
        entry = _Entry(record, limits, own or {}, measurement.recording, measurement.file)
        self._entries.append(entry)
        self._keep_memory_flat(entry)
        return entry.profile()

    def keep_unmeasured(self, device: DeviceKind, why: str) -> None:
        """Keep the reason why there is no profile."""
        self._entries.append(_Entry(unmeasured(device, why), (), {}, NOTHING_NOTED, None))

    def hold(self, limit: Limit) -> None:
        """Note that a limit that compares was judged."""
        self._held.add((limit.key, limit.bound))

    def note_undecided(self, words: str) -> None:
        """What becomes of a comparison's limit that is not decided."""
        if self._undecided == "fail":
            self.broken.append(words)
        elif self._undecided == "warn":
            self.notes.append(words)

    @property
    def fails_undecided(self) -> bool:
        """Whether what is not decided fails the test."""
        return self._undecided == "fail"

    @property
    def unconcluded(self) -> bool:
        """Whether anything was asked for that no conclusion was drawn from."""
        return self._concluded < len(self._entries) or bool(self._asked)

    def records(self, *, disabled: bool) -> Records:
        """What was taken since the last call, judged by the limits that stand now."""
        new, self._concluded = self._entries[self._concluded :], len(self._entries)
        broken, self.broken = self.broken, []
        notes, self.notes = self.notes, []
        unmeasured = tuple(map(self._unmeasured, self._asked))
        self._asked.clear()
        return Records(
            profiles=tuple(self._judged(entry) for entry in new),
            profiled=bool(self._entries),
            compared=self.compared,
            disabled=disabled and (self.ran_disabled or self.compared),
            limits=_names(self.limits),
            unmeasured=unmeasured,
            unheld=_names(
                limit
                for key, limit in self._comparing.items()
                if (key, limit.bound) not in self._held
            ),
            broken=tuple(broken),
            notes=tuple(notes),
            undecided=self._undecided,
            asked=self._wants_numbers,
        )

    def close(self) -> None:
        """Take nothing more: the test has ended, and nobody will judge it."""
        self._closed = True

    def _refuse_late(self) -> None:
        if self._closed:
            raise IncompleteProfile(
                "this kernel_profile is of a test that has ended, so nothing would be judged: ask "
                "for the fixture in the test that measures"
            )

    def dismiss(self) -> None:
        """Draw no conclusion from what was taken so far: the test has failed by itself."""
        self._concluded = self._dismissed = len(self._entries)
        self._asked.clear()

    def report(self, test: str) -> run.Test | None:
        """What was taken since the last call, for the report; None if that is nothing."""
        new, self._reported = self._entries[self._reported :], len(self._entries)
        comparisons, self.comparisons = self.comparisons, []
        if not new and not comparisons:
            return None
        profiles = tuple(self._judged(entry) for entry in new)
        return run.Test(test, profiles, tuple(record() for record in comparisons))

    def _unmeasured(self, asked: Asked) -> Unmeasured:
        limits = [*self._limits_with(asked.own), *(self.comparing if asked.compares else ())]
        names = (asked.instead,) if asked.instead else _names(limits)
        return Unmeasured(asked.what, names, asked.remedy, asked.raised)

    def _limits_with(self, own: dict[Key, Limit]) -> tuple[Limit, ...]:
        return tuple({**self._marked, **self._set, **own}.values())

    def _judged(self, entry: _Entry) -> run.Profile:
        """The profile with its verdicts; judged again only by limits that it was not judged by."""
        limits = self._limits_with(entry.own)
        if limits != entry.limits:
            known = dict(zip(entry.limits, entry.record.verdicts, strict=True))
            verdicts = tuple(known.get(limit) or _late(entry, limit) for limit in limits)
            entry.record, entry.limits = replace(entry.record, verdicts=verdicts), limits
        return entry.record

    def _keep_memory_flat(self, newest: _Entry) -> None:
        """Of old profiles only metrics and verdicts stay."""
        self._kernels += newest.size
        while self._kernels > MOST_KERNELS and self._first_whole < len(self._entries) - 1:
            oldest = self._entries[self._first_whole]
            self._kernels -= oldest.size
            oldest.drop_kernels()
            self._first_whole += 1
        if len(self._entries) > MOST_TRACES:
            self._entries[-1 - MOST_TRACES].drop_trace()


def _late(entry: _Entry, limit: Limit) -> run.Verdict:
    """The verdict of a limit that came after the profile."""
    looks_at_kernels = bool(limit.patterns) or not limit.metric
    if looks_at_kernels and not entry.whole:
        return run.Verdict(limit=limit.name, outcome="incomplete", why=_NO_KERNELS)
    return evaluate(entry.record, [limit], entry.record.place)[0]


def _names(limits: Iterable[Limit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(limit.name for limit in limits))
