"""What becomes of a test: pure, from the records of what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from pytest_kernelprof.baselines.snapshots import why_not_kept
from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, NotJudged
from pytest_kernelprof.limits.kinds import Key, Limit
from pytest_kernelprof.limits.marks import not_on_the_cpu
from pytest_kernelprof.measure.policy import incomplete_words
from pytest_kernelprof.plugin.settings import Settings
from pytest_kernelprof.records.comparison import RunComparison, SnapshotReport
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Place, Profile, Verdict
from pytest_kernelprof.report.failure import INDENT, failure_text
from pytest_kernelprof.summary import advice, wording
from pytest_kernelprof.summary.records import TO_DO
from pytest_kernelprof.summary.verdicts import integrity_words, verdict_line


@dataclass(slots=True, eq=False)
class Request:
    """A measurement that the test requested, until its profile is kept.

    Attributes:
        what: which region, call or comparison, and at which line.
        limits: the names of what is judged by it; None for the limits of the test.
        remedy: what to do where something is expected to be raised; empty where it was refused.
        raised: the kind of exception that ended it, which the test has caught; empty for a region
            that was never entered or left.
        refused: why, in words, where the exception is one of ours.
        thread: which other thread than the test's requested it; empty for the test's own. What is
            raised there does not reach the test.
        own: limits of it alone, beside those of the test.
        compares: whether the test's limits that compare are about it, too.
        place: the line of the test that requested it, if that matters.
        group: the ranks that make it together, as a group or as numbers; None for all.
        loads: whether it reads a trace, for which no device is needed.
    """

    what: str
    limits: tuple[str, ...] | None = None
    remedy: str = ""
    raised: str = ""
    refused: str = ""
    thread: str = ""
    own: dict[Key, Limit] = field(default_factory=dict)
    compares: bool = False
    place: Place | None = None
    group: object = None
    loads: bool = False


class Records(NamedTuple):
    """What a test took since it was last judged: all that ``conclude`` looks at.

    Attributes:
        profiles: with their verdicts.
        profiled: whether the test has profiled anything, then or before.
        compared: whether it has compared anything.
        unmeasured: why something ran without being measured, and was not judged.
        blind: why the device could not be profiled.
        limits: the names of the limits that stand on the test.
        unfinished: what was not measured to its end.
        unheld: the limits that compare and were not judged.
        broken: the messages of comparisons that are over their limit.
        no_snapshot: why the test lacks a snapshot that is required.
        notes: further warnings, besides those about verdicts.
        asked: whether the test asks for numbers. Of one that does not (--kernelprof-all), a number
            that could not be had is told in its row alone.
    """

    profiles: tuple[Profile, ...] = ()
    profiled: bool = False
    compared: bool = False
    unmeasured: str = ""
    blind: str = ""
    limits: tuple[str, ...] = ()
    unfinished: tuple[Request, ...] = ()
    unheld: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    no_snapshot: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = True

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of all profiles."""
        return [verdict for profile in self.profiles for verdict in profile.verdicts]


class Conclusion(NamedTuple):
    """What becomes of a test.

    Attributes:
        raises: what is wrong: a limit is exceeded, a number is missing, or no limit applies here.
        warnings: what the user should know all the same, also of an error or a skip.
        accepts: of a failure, whether an update of the test's snapshot mends it.
    """

    raises: LimitExceeded | IncompleteProfile | NotJudged | None = None
    warnings: tuple[str, ...] = ()
    accepts: bool = False


def failure_of(test: Test, settings: Settings, *baselines: RunComparison) -> str:
    """Why a test fails by its profiles; empty if it does by none.

    Args:
        settings: those of the test. baselines: what ran in turn with it.
    """
    over = tuple(one for one in test.profiles if _fails(one, settings))
    run = settings.run_document
    earlier = (RunComparison(source="run", name=run),) if run else ()
    return failure_text(replace(test, profiles=over), (*baselines, *earlier)) if over else ""


def _fails(profile: Profile, settings: Settings) -> bool:
    failing = {"failed", "undecided"} if settings.undecided == "fail" else {"failed"}
    return any(verdict.outcome in failing for verdict in profile.verdicts)


def conclude(records: Records, test: Test, settings: Settings) -> Conclusion:
    """What follows from what a test took. A violated limit comes first: it is certain, whatever
    else could not be had.

    Args:
        test: how pytest is told to run it; its limits, and the line that has them.
        settings: those of the test.
    """
    over = [one for one in records.profiles if _fails(one, settings)]
    fails = bool(over or records.broken or records.no_snapshot)
    accepts = fails and _is_by_snapshot_alone(records, settings)
    test = told_test(test, records.profiles, accepts=accepts)
    broken = (*filter(None, [failure_of(test, settings)]), *records.broken, *records.no_snapshot)
    if accepts and not over:
        command = advice.update_command([test.id], records.profiles[-1].environment.kind)
        accept = f"{INDENT}{TO_DO}accept it:\n{2 * INDENT}{command}"
        broken = (*broken[:-1], f"{broken[-1]}\n{accept}")
    if broken and not settings.warn_only:
        place = over[0].place if over else None
        failure = LimitExceeded("\n".join(broken), pytrace=False, place=place)
        return Conclusion(failure, accepts=accepts)
    if error := records.blind or _nothing_measured(records) or _not_judged(records):
        return Conclusion(IncompleteProfile(error), broken)
    skip = "" if records.compared else _compiled_words(records) or _none_applies(records)
    if skip:
        return Conclusion(NotJudged(skip), broken)
    for profile in records.profiles if records.asked or records.limits else ():
        missing = (verdict_line(one) for one in profile.verdicts if one.outcome == "incomplete")
        if error := incomplete_words(profile) or "; ".join(missing):
            return Conclusion(IncompleteProfile(error), broken)
    return Conclusion(warnings=(*broken, *_warnings(records, settings.undecided), *records.notes))


def told_test(test: Test, profiles: tuple[Profile, ...], *, accepts: bool) -> Test:
    """A test as its failure tells of it.

    Args:
        accepts: whether an update of its snapshot mends it.
    """
    kind = profiles[-1].environment.kind if profiles else ""
    snapshot = SnapshotReport(file="", device=kind, key="", accepts=True) if accepts else None
    return replace(test, profiles=profiles, snapshot=snapshot)


def _is_by_snapshot_alone(records: Records, settings: Settings) -> bool:
    """Whether a test that fails would pass with another snapshot, and one can be made of it."""
    undecided = ("undecided",) if settings.undecided == "fail" else ()
    failing = ("failed", "incomplete", *undecided)
    return bool(records.profiles) and not (
        records.broken
        or records.blind
        or _not_judged(records)
        or any(map(why_not_kept, records.profiles))
        or any(one.outcome in failing and not one.of_snapshot for one in records.verdicts)
    )


def _nothing_measured(records: Records) -> str:
    if records.profiled or records.compared or records.unmeasured or not records.asked:
        return ""
    if records.unfinished:
        return f"the test profiled nothing: {_ended_early(records.unfinished[0])}"
    return (
        "the test asks for kernel_profile but profiled nothing. Call kernel_profile(fn, *args), "
        "use kernel_profile.region(...), or drop the fixture (see docs/reference.md#fixtures)"
    )


def _not_judged(records: Records) -> str:
    """A limit about nothing would pass."""
    for one in records.unfinished:
        if records.unmeasured and not one.loads:
            continue
        if one.limits:
            return f"{', '.join(one.limits)} was not judged: {_ended_early(one)}"
        if one.thread:
            return _ended_early(one)
    if records.unmeasured:
        return ""
    if records.limits and not records.profiled:
        return (
            f"{', '.join(records.limits)} was not judged: the test only compares, and a "
            "comparison's profiles are exempt from limits; call kernel_profile(fn, *args) with "
            "the code to limit"
        )
    if records.unheld:
        return (
            f"{', '.join(records.unheld)} was not judged: it compares the callable that the test "
            "gives to kernel_profile(fn, *args), and the test gave none; call "
            "kernel_profile(fn, *args), or compare in the test with kernel_profile.compare(f, "
            "g, *args)"
        )
    return ""


def _ended_early(one: Request) -> str:
    if one.refused and not one.remedy:
        return f"{one.what}: {one.refused}"
    where = f" in {one.thread}" if one.thread else ""
    if one.thread and not one.raised:
        return f"{one.what} is still being measured{where}: join that thread before the test ends"
    if one.thread and one.refused:
        return f"{one.what} was not measured{where}: {one.refused}"
    raised = f" ({one.raised} was raised{where})" if one.raised else ""
    return f"{one.what} was not measured completely{raised}; {one.remedy}"


def _compiled_words(records: Records) -> str:
    """How the limits fare of a test whose kernels were compiled and not run; else empty."""
    targets = dict.fromkeys(k.environment.capability for k in records.profiles if k.compiled)
    alike = wording.grouped(records.verdicts, lambda one: verdict_line(replace(one, target="")))
    every = ((of[0], dict.fromkeys(one.target for one in of)) for of in alike.values())
    lines = [verdict_line(replace(one, target=", ".join(on))) for one, on in every]
    told = "; ".join([*(lines or ["no limit"]), *records.notes])
    return f"{wording.compiled_for(targets)}: {told}" if targets else ""


def _none_applies(records: Records) -> str:
    """As a test skips whose markers need a GPU: its limits came as it ran."""
    verdicts = [one for one in records.verdicts if one.of_limit or one.outcome != "not judged"]
    if not verdicts or any(verdict.outcome != "not judged" for verdict in verdicts):
        return ""
    if not all(one.device == "cpu" for one in verdicts):
        return f"nothing to judge: {'; '.join(dict.fromkeys(map(verdict_line, verdicts)))}"
    told = (f"{one.limit} ({one.why})" if one.patterns else one.limit for one in verdicts)
    return not_on_the_cpu(told)


def _warnings(records: Records, undecided: str) -> list[str]:
    told = [
        f"the code never became warm: {integrity_words(profile)}"
        for profile in records.profiles
        if not profile.integrity.settled and not profile.one_shot
    ]
    for profile in records.profiles:
        metrics = [METRICS[one.metric] for one in profile.verdicts if one.metric in METRICS]
        is_timed, kernels = any(one.kind != "exact" for one in metrics), profile.metrics["kernels"]
        if is_timed and profile.in_place:
            told.append(in_place_words(profile.in_place))
        if is_timed and not kernels.stable:
            told.append(
                f"UNSTABLE: the code launches {min(kernels.rounds):.0f} to "
                f"{max(kernels.rounds):.0f} kernels a call, so its times are those of different "
                "work"
            )
        doubt = wording.doubt(profile.conditions)
        open_ones = (one for one in profile.verdicts if one.outcome == "undecided")
        told += (verdict_line(one, doubt) for one in open_ones if undecided != "pass")
    return told


def in_place_words(names: Sequence[str]) -> str:
    """The warning that rounds may have had different inputs."""
    return (
        f"the code changes {', '.join(names)} in place, so each round may have different inputs: "
        "make new ones, or reset them, with kernel_profile.run(fn, setup=make_arguments)"
    )
