"""What a test asked for and took: the ledger keeps it until it is concluded from."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING

from _pytest.outcomes import OutcomeException
from msgspec.structs import replace

from pytest_kernelprof import api, errors, system
from pytest_kernelprof.analysis.session_profile import unmeasured, with_same_lines
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.plugin.outcome import Records, Request
from pytest_kernelprof.profiler.operators import registered_operators
from pytest_kernelprof.profiler.torch_profiler import thread_words
from pytest_kernelprof.records.document import Comparison, Test
from pytest_kernelprof.records.profile import Profile, Timeline, Verdict
from pytest_kernelprof.records.recording import NOTHING_NOTED, DeviceKind, Recording
from pytest_kernelprof.summary import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_kernelprof.limits.kinds import Key, Limit
    from pytest_kernelprof.limits.marks import Marks
    from pytest_kernelprof.measure.runner import Measurement
    from pytest_kernelprof.plugin.run_baseline import Baseline
    from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
    from pytest_kernelprof.profiler.trace_folder import TraceFile
    from pytest_kernelprof.records.metrics import Rated

MOST_KERNELS = 100_000
"""Kernels (and operators, copies, waits) that are kept of a test: those of its newest profiles."""
MOST_EVENTS = 100_000
"""Events of timelines that are kept of a test: those of its newest profiles."""
MOST_TRACES = 100
"""Trace files that are kept of a test, for ``save_trace``: those of its newest profiles."""

_NO_KERNELS = (
    "the kernels of this profile were dropped: a test keeps the kernels of its newest profiles, "
    f"up to {MOST_KERNELS:,} in all; read kernel_profile.last right after the call"
)
_NO_TRACE = (
    f"the trace of this profile was deleted: a test keeps the newest {MOST_TRACES} traces; save "
    "it right after the call, or write all with --kernelprof-trace-dir=DIR"
)


_NOTHING_FOLLOWED = "nothing was measured after it; say it before kernel_profile(fn) or in a region"
_TRACES_ALONE = "not judged: what {{tests}} measures beside loaded traces ({})"
_SAID_TWICE = "kernel_profile.work: said twice before one measurement; say the work of a call once"


@dataclasses.dataclass(slots=True)
class _Entry:
    """A measurement that is kept.

    Attributes:
        record: the profile with its verdicts. limits: what these are by, one by one.
        own: the limits given to it alone.
        recording, file: of its trace, as long as that is kept.
        shown: the profile as users see it, one object as long as nothing of it is dropped.
    """

    record: Profile
    limits: tuple[Limit, ...]
    own: dict[Key, Limit]
    recording: Recording = NOTHING_NOTED
    file: TraceFile | None = None
    shown: api.Profile | None = None

    def profile(self) -> api.Profile:
        """The profile as users see it."""
        if self.shown is None:
            self.shown = api.Profile(
                self.record,
                trace=self.file.path if self.file else "",
                recording=self.recording,
                keeps=self.file,
                no_kernels="" if self.record.kernels_kept else _NO_KERNELS,
                no_trace="" if self.file else _NO_TRACE,
            )
        return self.shown

    def drop_kernels(self) -> None:
        others = tuple(map(without_kernels, self.record.other_ranks))
        self.record = replace(without_kernels(self.record), other_ranks=others)

    def drop_timeline(self) -> None:
        others = tuple(replace(one, timeline=None) for one in self.record.other_ranks)
        self.record = replace(self.record, timeline=None, other_ranks=others)

    def drop_trace(self) -> None:
        self.file, self.recording = None, NOTHING_NOTED


@dataclasses.dataclass(slots=True)
class _Bound:
    """Keeps the memory of a test flat: of its old profiles only metrics and verdicts stay.

    Attributes:
        most: how much of one sort is kept of a test.
        size: how much of it a profile has. drop: takes it from a profile.
        total: how much all profiles have. first: the oldest that was not dropped from.
    """

    most: int
    size: Callable[[_Entry], int]
    drop: Callable[[_Entry], None]
    total: int = 0
    first: int = 0

    def apply(self, entries: Sequence[_Entry]) -> None:
        """Count the newest profile; drop from the oldest ones what is too much."""
        self.total += self.size(entries[-1])
        while self.total > self.most and self.first < len(entries) - 1:
            oldest = entries[self.first]
            self.total -= self.size(oldest)
            self.drop(oldest)
            oldest.shown = None
            self.first += 1


def _kernels_of(entry: _Entry) -> int:
    """Kernels, copies and waits, of all ranks."""
    parts = ((r.kernels, *r.variants, r.copies, r.waits) for r in entry.record.ranks)
    return sum(len(one) for of_rank in parts for one in of_rank)


def _events_of(entry: _Entry) -> int:
    return sum(len(one.timeline.name) for one in entry.record.ranks if one.timeline)


class Ledger:
    """The limits of one test, and all that it took.

    Args:
        lines: whether source lines are learnt of every profile, not only of one over a limit.

    Attributes:
        marks: what the markers of the test say by now; ``set_limit`` comes before them.
        compared: whether anything was compared. compared_by: the limits that were judged so.
        unmeasured: why something that the test asked for ran without being measured, and was not
            judged. blind: why the device could not be profiled, which is an error.
        comparisons: what gives the records of comparisons that no report has yet.
        broken: the messages of comparisons over their limit that no conclusion has yet.
        notes: what a conclusion is to warn of, besides the verdicts.
        loads: whether the test loads a trace.
        end_notes: what the run says of the test at its end; ``{tests}`` stands for such tests.
        unsaved: why traces were not written that should have been.
    """

    def __init__(
        self,
        marks: Marks,
        *,
        asked: bool = True,
        lines: bool = False,
        snapshot: SnapshotJudge | None = None,
        baseline: Baseline | None = None,
    ) -> None:
        self.marks = marks
        self._set: dict[Key, Limit] = {}
        self._wants_numbers, self._lines = asked, lines
        self._baseline = baseline
        self.judge_by(snapshot)
        self._entries: list[_Entry] = []
        self._bounds = (
            _Bound(MOST_KERNELS, _kernels_of, _Entry.drop_kernels),
            _Bound(MOST_EVENTS, _events_of, _Entry.drop_timeline),
            _Bound(MOST_TRACES, lambda entry: int(entry.file is not None), _Entry.drop_trace),
        )
        self._concluded = self._dismissed = self._reported = 0
        self._closed = False
        self.compared_by: list[Limit] = []
        self.compared = False
        self.unmeasured = self.blind = ""
        self._left_out: dict[str, None] = {}
        self.comparisons: list[Callable[[], Comparison]] = []
        self.broken: list[str] = []
        self.notes: list[str] = []
        self.end_notes: list[str] = []
        self.unsaved: list[str] = []
        self._requests: dict[Request, None] = {}
        self._of_fixtures: set[Request] = set()
        self._for_fixtures = self.loads = False
        self._work: dict[Rated, tuple[int, Request]] = {}
        self._thread = system.Real.this_thread()

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
    def profiles(self) -> tuple[api.Profile, ...]:
        """All profiles so far, in order."""
        return tuple(entry.profile() for entry in self._entries)

    @property
    def last(self) -> api.Profile | None:
        """The newest profile, if there is one."""
        return self._entries[-1].profile() if self._entries else None

    def __len__(self) -> int:
        return len(self._entries)

    def ask(self, request: Request) -> None:
        """Note that the test requests a measurement: its limits are not judged before it ends.

        Raises:
            IncompleteProfile: nothing is judged any more.
        """
        self._refuse_late()
        if system.Real.this_thread() != self._thread:
            request.thread = thread_words(system.Real.this_thread())
        self._requests[request] = None
        self.loads |= request.loads

    @contextlib.contextmanager
    def asking(self, request: Request) -> Iterator[None]:
        """The same until the block has ended well. A test may catch what is raised there; the
        conclusion does not."""
        self.ask(request)
        try:
            yield
        except GeneratorExit:  # left open: Python ends it when nobody holds it any more
            raise
        except BaseException as error:
            request.raised = type(error).__name__
            request.refused = str(error) if isinstance(error, errors.KernelprofError) else ""
            raise
        self._requests.pop(request, None)

    def say_work(self, said: Mapping[Rated, int], request: Request) -> None:
        """Note the work of the measurement that is next or running: nothing else takes it.

        Raises:
            MarkerError: it was said already.
        """
        if self._work.keys() & said.keys():
            raise errors.MarkerError(_SAID_TWICE)
        request.refused = _NOTHING_FOLLOWED
        self.ask(request)
        self._work |= {name: (amount, request) for name, amount in said.items()}

    def take_work(self) -> dict[Rated, int]:
        """Return the work that the test said of the measurement that begins or ends now."""
        said, self._work = self._work, {}
        for _, request in said.values():
            self._requests.pop(request, None)
        return {name: amount for name, (amount, _) in said.items()}

    def so_far(self, profile: Profile) -> tuple[Verdict, ...]:
        """How a profile fares while rounds are still taken, which more of them may change."""
        times = self._baseline.times_so_far(profile) if self._baseline else ()
        return (*evaluate(profile, self.limits, registered_operators), *times)

    def keep(
        self,
        measurement: Measurement,
        request: Request,
        timeline: Timeline | None = None,
        trace: str = "",
    ) -> api.Profile:
        """Judge a measurement and keep it; if a limit is over, learn the source lines while the
        arguments live."""
        limits = self._limits_with(request.own)
        record = replace(measurement.profile, place=request.place)
        verdicts = (*evaluate(record, limits, registered_operators), *self._by_baselines(record))
        is_over = any(one.outcome == "failed" for one in verdicts)
        # Each call may have other lines, so those that a limit allows have to be those of as many.
        judged = [len(record.metrics[one.metric].rounds) for one in limits if one.allow]
        wanted = self._lines or is_over
        lined = with_lines_if(max(judged, default=1) if wanted else 0, measurement)
        if lined is not measurement.profile:
            record = replace(lined, place=request.place)
            # Only now is known which lines a limit allows.
            if any(one.allow for one in limits):
                verdicts = evaluate(record, limits, registered_operators)
            verdicts = (*verdicts[: len(limits)], *self._by_baselines(record))
        record = replace(record, verdicts=verdicts, timeline=timeline, trace=trace)
        if lined is not measurement.profile and record.other_ranks:
            record = with_blamed_timeline(record, measurement)
        entry = _Entry(record, limits, request.own, measurement.recording, measurement.file)
        return self._kept(entry).profile()

    def keep_record(
        self, record: Profile, request: Request, shown: api.Profile | None = None
    ) -> api.Profile:
        """Judge what another process has measured for this test, or what was compiled and not run,
        and keep it.

        Args:
            shown: the profile as users see it, of a trace that was read.
        """
        if self._entries and not (record.label and (shown or record.compiled)):
            record = replace(record, label=f"profile {len(self._entries) + 1}")
        record, limits = replace(record, place=request.place), self._limits_with(request.own)
        verdicts = (*evaluate(record, limits, registered_operators), *self._by_baselines(record))
        record = replace(record, verdicts=verdicts)
        if shown is not None:
            shown.record = record
        return self._kept(_Entry(record, limits, request.own, shown=shown)).profile()

    def judge_by(self, snapshot: SnapshotJudge | None) -> None:
        """Judge by this snapshot, in place of that of the device here."""
        self._snapshot = snapshot
        self._baselines = tuple(one for one in (snapshot, self._baseline) if one is not None)

    def _kept(self, entry: _Entry) -> _Entry:
        for one in self._baselines:
            one.note(entry.record)
        self._entries.append(entry)
        for bound in self._bounds:
            bound.apply(self._entries)
        return entry

    def keep_unmeasured(self, device: DeviceKind, why: str) -> None:
        """Keep the reason why there is no profile."""
        self._entries.append(_Entry(unmeasured(device, why), (), {}))

    def leave_out(self, why: str, limits: Iterable[Limit] = ()) -> None:
        """Note that something ran without being measured.

        Args:
            limits: what would have been judged by it, beside the limits of the test.

        Raises:
            ProfilerUnavailable: it had to be measured.
        """
        self.unmeasured = why
        self._left_out.update(dict.fromkeys(_names(limits)))
        if why.startswith(errors.NO_GPU):
            raise errors.ProfilerUnavailable(why)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the limits that were not judged since nothing was measured."""
        if not self.unmeasured:
            return ()
        promised = _names((*self.limits, *self.marks.comparisons))
        return tuple(dict.fromkeys((*promised, *self._left_out)))

    @property
    def has_judged(self) -> bool:
        """Whether any limit was judged, or anything asserted of a comparison."""
        verdicts = (one for entry in self._entries for one in entry.record.verdicts)
        return self.compared or any(one.outcome != "not judged" for one in verdicts)

    @property
    def has_nothing(self) -> bool:
        """Whether the test wants numbers and has asked for nothing."""
        asked = self._entries or self.compared or self._requests or self.unmeasured or self.blind
        return self._wants_numbers and not asked

    def begin_call(self, *, for_fixtures: bool) -> None:
        """Note what fixtures have begun to measure around the call phase.

        Args:
            for_fixtures: whether the test itself does not ask for numbers.
        """
        self._of_fixtures, self._for_fixtures = set(self._requests), for_fixtures

    @property
    def waits_for_fixtures(self) -> bool:
        """Whether fixtures have to end before the test is judged."""
        held = not self._of_fixtures.isdisjoint(self._requests)
        return held or (self._for_fixtures and self.has_nothing)

    @property
    def unconcluded(self) -> bool:
        """Whether anything was asked for that no conclusion was drawn from."""
        taken = self._concluded < len(self._entries)
        return taken or bool(self._requests) or self.waits_for_fixtures

    def records(self, unmeasured: str = "") -> Records:
        """What was taken since the last call, judged by the limits that stand now.

        Args:
            unmeasured: why the whole test runs without being measured, which loads no trace.
        """
        new, self._concluded = self._entries[self._concluded :], len(self._entries)
        broken, self.broken = self.broken, []
        notes, self.notes = self.notes, []
        if self.loads and new and self.left_out:
            self.end_notes.append(_TRACES_ALONE.format(self.unmeasured.partition(":")[0]))
        unfinished = tuple(map(self._unfinished, tuple(self._requests)))
        self._requests.clear()
        return Records(
            profiles=tuple(self._judged(entry) for entry in new),
            profiled=bool(self._entries),
            compared=self.compared,
            unmeasured=("" if self.loads else unmeasured) or self.unmeasured,
            blind=self.blind,
            limits=_names(self.limits),
            unfinished=unfinished,
            unheld=_names(one for one in self.marks.comparisons if one not in self.compared_by),
            broken=tuple(broken),
            no_snapshot=tuple(self._snapshot.broken()) if self._snapshot is not None else (),
            notes=tuple(notes),
            asked=self._wants_numbers,
        )

    def close(self) -> None:
        """Take nothing more: the test has ended, and nobody will judge it."""
        self._closed = True

    def _refuse_late(self) -> None:
        if self._closed:
            raise errors.IncompleteProfile(
                "this kernel_profile belongs to a test that has ended, so nothing would be "
                "judged: request the fixture in the test that measures"
            )

    def dismiss(self) -> None:
        """Draw no conclusion from what was taken so far: the test has failed by itself."""
        self._concluded = self._dismissed = len(self._entries)
        self._requests.clear()

    def report(self, before: Test) -> Test:
        """Add what was taken since the last call to the record of the test."""
        new, self._reported = self._entries[self._reported :], len(self._entries)
        comparisons, self.comparisons = self.comparisons, []
        if not new and not comparisons:
            return before
        profiles = (*before.profiles, *map(self._judged, new))
        compared = (*before.comparisons, *(record() for record in comparisons))
        return replace(before, profiles=profiles, comparisons=compared)

    def judged(self) -> tuple[Profile, ...]:
        """All that were taken, with their verdicts."""
        return tuple(map(self._judged, self._entries))

    def _unfinished(self, request: Request) -> Request:
        if request.limits is not None:
            return request
        compared = self.marks.comparisons if request.compares else ()
        names = _names([*self._limits_with(request.own), *compared])
        return dataclasses.replace(request, limits=names)

    def _limits_with(self, own: dict[Key, Limit]) -> tuple[Limit, ...]:
        marked = {limit.key: limit for limit in self.marks.limits}
        return tuple({**marked, **self._set, **own}.values())

    def _by_baselines(self, record: Profile) -> Iterator[Verdict]:
        """By the snapshot, and by the earlier run; of what did not run there is nothing to say."""
        baselines = () if record.compiled else self._baselines
        return (made for one in baselines for made in one.verdicts(record))

    def _judged(self, entry: _Entry) -> Profile:
        """The profile with its verdicts; judged again only by limits that it was not judged by."""
        limits = self._limits_with(entry.own)
        if limits != entry.limits:
            made = entry.record.verdicts
            known = dict(zip(entry.limits, made, strict=False))
            verdicts = tuple(known.get(limit) or _late(entry, limit) for limit in limits)
            verdicts += made[len(entry.limits) :]  # by the baselines
            entry.record, entry.limits = replace(entry.record, verdicts=verdicts), limits
        return entry.record


def with_lines_if(runs: int, measurement: Measurement) -> Profile:
    """The profile, with source lines where this rank or another one wants them. It is judged
    without as well: an error of the extra runs hides no verdict.

    Args:
        runs: how many runs have to agree on a line; 0 where none is wanted.
    """
    attribute, agreement = measurement.attribute, measurement.agreement
    if attribute is None or not (most := max(agreement.gather("source lines", runs))):
        return measurement.profile
    try:
        return functools.reduce(with_same_lines, (attribute() for _ in range(max(1, most))))
    except (Exception, OutcomeException) as error:
        agreement.broke(error)
        return measurement.profile


def with_blamed_timeline(record: Profile, measurement: Measurement) -> Profile:
    """The profile with the timeline of the rank that breaks a limit, if this rank keeps its own: a
    report shows that one. All ranks of the call ask; the one that is blamed sends it. It is judged
    without as well: an error hides no verdict."""
    is_over = any(one.outcome == "failed" for one in record.verdicts)
    is_blamed = is_over and wording.shown_rank(record) is record
    try:
        own = record.timeline or measurement.timeline() if is_blamed else Timeline()
        found = measurement.agreement.gather("the timeline", own)
    except (Exception, OutcomeException) as error:
        measurement.agreement.broke(error)
        return record
    by_rank = zip((one.rank for one in record.ranks), found, strict=True)
    sent = {rank: timeline for rank, timeline in by_rank if timeline.kind and record.timeline}
    others = (replace(one, timeline=sent.get(one.rank)) for one in record.other_ranks)
    return replace(record, other_ranks=tuple(others))


def without_kernels(record: Profile) -> Profile:
    """A profile by its numbers alone."""
    return replace(record, kernels=(), variants=(), copies=(), waits=(), kernels_kept=False)


def _late(entry: _Entry, limit: Limit) -> Verdict:
    """The verdict of a limit that came after the profile."""
    if (limit.of_kernels or limit.allow) and not entry.record.kernels_kept:
        return Verdict(limit=limit.name, outcome="incomplete", why=_NO_KERNELS)
    return evaluate(entry.record, [limit], registered_operators)[0]


def _names(limits: Iterable[Limit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(limit.name for limit in limits))
