"""What to do: about the problems of a run, about limits that are near or loose, about a profile."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from pytest_kernelprof.records.comparison import KEPT_COUNTS, LIMIT_OF, TestState
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.metrics import METRICS, WITH_INTERVAL
from pytest_kernelprof.records.profile import Cause, Copy, Kernel, Place, Profile, Verdict, Wait
from pytest_kernelprof.summary import records, wording
from pytest_kernelprof.summary.kernels import new_kernels, slower_kernels
from pytest_kernelprof.summary.records import RERUN, Entry, Hint, Problem, Remedy, Row, Task
from pytest_kernelprof.summary.verdicts import (
    detail_of,
    offending_calls,
    offending_kernels,
    verdict_line,
)
from pytest_kernelprof.units import printable

MOST_TASKS = 6
_MOST_TESTS, _MOST_FILES, _MOST_LIMITS, _MOST_FOUND, _MOST_WHYS, _LONGEST = 8, 40, 3, 2, 3, 100
_MOST_EACH = 4
_TESTS = "{tests}"
_UPDATE = "--kernelprof-update"
_ACCEPT = f" snapshot with {_UPDATE}"
_ADVISED = re.compile(r"; ((?:profile|record) [^;]*)$")
"""How a problem ends that says what helps."""


IF_INTENDED = "if intended"
"""Before what may be done else."""
COMPARED = "make the candidate faster, or lower the limit"
"""What to do where a callable is not as fast as asserted."""


def update_command(tests: Iterable[str], device: str) -> str:
    """Return the command that makes snapshots of what tests launch now.

    Args:
        tests: their ids, as pytest is told to run them. device: "cpu", or a GPU's kind or folder.
    """
    named = f" {_arguments(tests)}".rstrip()
    return printable(_accepting(device).replace(f" {_TESTS}", named))


def again_command(tests: str, profile: Profile) -> str:
    """Return the command that measures tests again as a profile of one was measured."""
    command = printable(f"pytest {tests}")
    if profile.other_ranks:
        return f"torchrun --nproc-per-node {len(profile.ranks)} -m {command}"
    return f"{command}{_on(profile.environment.kind)}"


def remedy_of(run: Run, entries: Sequence[Entry]) -> Remedy:
    """Return what to do about tests with one cause, by the worst of them.

    Args:
        entries: the worst first.
    """
    plan, tests = _plan(run, entries), [each.test.id for one in entries for each in one.each]
    command = printable(plan.command.replace(_TESTS, _arguments(tests)))
    _, accepts, options = plan.intended.partition(_ACCEPT)
    accept = printable(f"pytest {_arguments(tests)} {_UPDATE}{options}") if accepts else ""
    return plan._replace(command=command, tests=tuple(dict.fromkeys(tests)), accept=accept)


def tasks_of(problems: Sequence[Problem], most: int = MOST_TASKS) -> tuple[Task, ...]:
    """Return where to look and what to do about each problem, the worst first; of very many the
    first."""
    left = Task("", f"{len(problems) - most} more: -v lists all", "")
    return (*map(task_of, problems[:most]), *([left] if len(problems) > most else []))


def commands_of(problems: Iterable[Problem]) -> Iterator[tuple[str, str]]:
    """Yield the commands of problems, each once for all tests that it is for, with what it does."""
    known = [(told, one.remedy.tests) for one in problems for told in _commands(one.remedy)]
    known.sort(key=lambda one: one[0][0].startswith("to accept"))
    for (does, command), several in wording.grouped(known, lambda one: one[0]).items():
        tests = _arguments(test for _, named in several for test in named)
        yield does, printable(command.replace(_TESTS, tests))


def _commands(remedy: Remedy) -> Iterator[tuple[str, str]]:
    """What the commands of a problem do, and each without its tests. An update accepts nothing
    while a limit is broken."""
    does, named = remedy.again, printable(_arguments(remedy.tests))
    does = "to update outdated or missing snapshots" if _UPDATE in remedy.command else does
    when = "after raising the limits" if "allow" in remedy.intended else "if intended"
    told = {does: remedy.command, f"to accept in a snapshot, {when}": remedy.accept}
    return ((does, one.replace(named, _TESTS)) for does, one in told.items() if one)


def task_of(problem: Problem) -> Task:
    """Return where to look and what to do about a problem."""
    worst = problem.rows[0]
    named = worst.name if problem.tests == 1 else wording.count(problem.tests, "test")
    known = [one for one in worst.causes if one.sign != "-" and (one.place or one.lines)]
    told = [one for one in known if not one.sign][:2] if known and not known[0].sign else known[:1]
    lines = wording.cause_lines(*told) or wording.line_of(worst.place) or worst.file
    there = dict.fromkeys(place for one in told for place in wording.places_of(one))
    places = tuple(there) or tuple(filter(None, [worst.place]))
    said = _what_of(worst, problem.cause)
    what, _, excess = said.partition("; ")
    call = worst.profile.place if isinstance(worst, Row) else None
    each = list(_found(problem, what))
    left = sum(tests for _, tests in each[_MOST_EACH:])
    found = [words for words, _ in each[:_MOST_EACH]] + [f"and {left} more"] * (left > 0)
    remedy, known_whys = problem.remedy, _whys(worst, said, lines, places)
    whys = {words: at for words, at in known_whys if words.lower() != remedy.what.lower()}
    aside = {words: at for words, at in whys.items() if words.startswith(wording.ASIDE)}
    if (left_out := len(whys) - len(aside) - 1) >= _MOST_WHYS:
        first, at_first = next(iter(whys.items()))
        left_out += sum(int(number) - 1 for one in whys for number in _MORE.findall(one))
        others = "" if wording.OFTEN in first else f"; {left_out} others"
        whys = {f"{first}{others}": None if others else at_first, **aside}
    sure = tuple(_sure_of(worst)) if problem.tests == 1 and isinstance(worst, Row) else ()
    facts = (excess, *found, *whys) if problem.tests > 1 else (excess, *whys, *found)
    labels = {words: at for words, at in whys.items() if at is not None}
    if worst.causes and (at := worst.causes[0].place or worst.place) in places:
        labels[excess] = at
    chains = {at: _chains_at(worst.profile, at) for at in places if isinstance(worst, Row)}
    facts = tuple(one for one in facts if one and one not in "; ".join(sure).split("; "))
    return Task(lines, what, named, remedy, places, worst.told, call, sure, facts, labels, chains)


def _sure_of(row: Row) -> Iterator[str]:
    """How sure it is what is broken."""
    for one in row.profile.verdicts:
        if words := detail_of(one):
            is_alone = len(row.found) == 1 or one.comparison is not None
            yield words if is_alone else f"{wording.title(one)}: {words}"


def _chains_at(profile: Profile, place: Place) -> frozenset[tuple[str, ...]]:
    """The chains of operators by which a line launched what broken limits are about, or what
    differs from a baseline."""
    judged, new = wording.shown_rank(profile), new_kernels(profile)
    waits, copies = offending_calls(profile, judged)
    differ = (*slower_kernels(profile), *(new.marks if new is not None else ()))
    events: list[Kernel | Wait | Copy] = [profile.kernels[at] for at in differ]
    events += (judged.kernels[at] for at in offending_kernels(profile, judged))
    events += [judged.waits[at] for at in waits] + [judged.copies[at] for at in copies]
    if len({bool(one.metric) for one in profile.verdicts if one.outcome == "failed"}) > 1:
        events = [*judged.kernels]  # limits on names and on numbers are about different ones
    return frozenset(one.operators for one in events if wording.source_place(one.source) == place)


def _found(problem: Problem, what: str) -> Iterator[tuple[str, int]]:
    """What is wrong with each of several tests, where that has values that ``what`` does not say,
    and how many they are; of one what its first words do not say."""
    if problem.tests > 1:
        for words, rows in wording.grouped(problem.rows, found_words).items():
            names = [row.name for row in rows[:_MOST_EACH]]
            left = sum(len(row.each) for row in rows[_MOST_EACH:])
            told = ", ".join([*names, *([f"and {left} more"] if left else [])])
            is_said = ", ".join(rows[0].found) == what or not _VALUE.search(words)
            yield told if is_said else f"{told}: {words}", sum(len(row.each) for row in rows)
    elif problem.cause is not None and problem.cause.sign:
        yield found_words(problem.rows[0]), 1
    else:
        said = tuple(one.text.partition("; ")[0] for one in problem.rows[0].causes)
        above = (*said, *problem.rows[0].found[:_MOST_FOUND])
        yield from ((one, 1) for one in problem.rows[0].found if one not in above)


_NUMBER = re.compile(r" x\d+$")
_VALUE, _MORE = re.compile(r"\d|undecided|slower"), re.compile(r"^and (\d+) more$")


def found_words(one: Entry) -> str:
    """Return all that is wrong with a test that needs a look; or how it differs from its snapshot,
    which is outdated or missing."""
    if one.found:
        return "; ".join(one.found)
    found = (v for v in one.test.verdicts if v.of_snapshot)
    differ = (verdict_line(v) for v in found if v.comparison and v.comparison.change != "same")
    return "; ".join(dict.fromkeys(differ)) or "snapshot: outdated"


def _whys(
    worst: Entry, what: str, lines: str, places: Sequence[Place]
) -> Iterator[tuple[str, Place | None]]:
    """The causes of a test that are not in what is said of it, without what is; and which of these
    places each is about."""
    for at, one in enumerate(_causes_of(worst)):
        words = wording.brief(one) if one.sign else wording.without_operators(one.text)
        end = f" {_NUMBER.sub('', words.partition(' (')[0])}"
        text = one.text.removeprefix(what).lstrip(".; ").removesuffix("; undecided")
        is_said = any(f" {_NUMBER.sub('', part)}".endswith(end) for part in what.split("; "))
        is_said = is_said or worst.causes[at].text in worst.found[:_MOST_FOUND]
        if (at and one.sign) or not is_said:
            own = wording.cause_lines(one)
            is_here, own = own == lines, own.replace(lines, "")
            left = Cause(text, sign=one.sign) if is_here else structs.replace(one, text=text)
            for told in wording.located(left):
                here = (p for p in places if f" at {wording.line_of(p)}," in f"{told},")
                is_aside = own or " at " in told or told.startswith(wording.ASIDE)
                is_alone = len(places) == 1 and not is_aside
                yield told, places[0] if is_alone else next(here, None)


def _causes_of(worst: Entry) -> Iterator[Cause]:
    """The causes of a test, without the limits and values that are said before them."""
    for one in worst.causes:
        text = one.text
        for found in (said.partition(" (was ")[0] for said in worst.found[:_MOST_FOUND]):
            limit = found.partition(": ")[0].removesuffix(" undecided")
            text = text.removeprefix(f"{found}; ").removeprefix(f"{limit}: ")
        yield structs.replace(one, text=text)


def _what_of(worst: Entry, cause: Cause | None) -> str:
    """What is wrong, shortly: the kernel that a comparison names or what ended the test, else the
    first limit with its values."""
    found = ", ".join(wording.first_of(worst.found, _MOST_FOUND, "{} more"))
    limit, on_cpu = found.partition(": ")[0], isinstance(worst, Row) and worst.profile.on_cpu
    if cause is not None:
        words = wording.brief(cause)
        is_one = len(words) <= _LONGEST and ";" not in cause.text
        says_all = limit in ("", "forbid_kernels", "expect_kernels", *LIMIT_OF.values())
        if worst.told in records.FAILED_OTHERWISE:
            return told_by(words)[0]
        if worst.told == "incomplete":
            return words.partition("; ")[0]
        if is_one and (cause.sign or says_all):
            came = [one for one in worst.causes if cause.sign == "-" and one.sign == "+"]
            if came:  # ``elementwise [gelu] -> [silu]``
                stem = words.partition(" [")[0]
                return f"{words} -> {wording.brief(came[0]).removeprefix(f'{stem} ')}"
            return f"{_SIGNED[cause.sign].format(_NOUNS[on_cpu])}{words}"
    first = next(_causes_of(worst), None)
    if first is None or worst.told == "undecided" or ";" in first.text:
        return found
    words = wording.brief(first)
    is_slower = words.startswith(wording.SLOWER)
    is_whole = words == wording.without_operators(first.text) and not is_slower
    return f"{found}; {words}" if words and is_whole and words not in found else found


def signed_words(causes: Iterable[Cause], *, on_cpu: bool) -> Iterator[str]:
    """Yield causes, each with a word for its sign, and where it is: ``kernel gone:
    vectorized_elementwise [mul] at model.py:14``."""
    for one in causes:
        told = "; ".join(wording.located(structs.replace(one, sign="")))
        yield f"{_SIGNED[one.sign].format(_NOUNS[on_cpu])}{told}"


_SIGNED = {"": "", "+": "added {}: ", "-": "{} gone: "}
_NOUNS = ("kernel", "operator")
"""What is counted: not on the CPU, and on it."""


def _limits_of(entries: Sequence[Entry]) -> str:
    """What to allow, and where that is written, unless it is the same at several places."""
    raised = {(_listed(_raised(one.test.verdicts)), _place_of_limits(one)): 0 for one in entries}
    same = len(raised) > 1 and len({one for one, _ in raised}) == 1
    return _listed(one if same or not at else f"{one} at {at}" for one, at in raised if one)


def _place_of_limits(one: Entry) -> str:
    """Where limits are to be changed: at the test, or at the call that has its own."""
    broken = (v for v in one.test.verdicts if v.of_limit and v.outcome != "passed")
    own = next((v for v in broken if v.limit not in one.test.limits), one.test)
    return wording.line_of(own.place) or one.test.id


def _arguments(tests: Iterable[str]) -> str:
    """Tests as pytest is told to run them: by name where they are few, else by their files; the
    first of very many, since without one a command is about every test."""
    told = list(dict.fromkeys(tests))
    if len(told) > _MOST_TESTS:
        named = list(dict.fromkeys(one.partition("::")[0] for one in told))
        told = named if len(named) <= _MOST_FILES else told[:1]
    return " ".join(map(shlex.quote, told))


def _listed(limits: Iterable[str]) -> str:
    """``max_kernels(5) and max_launches(5)``."""
    *others, last = wording.first_of(list(dict.fromkeys(limits)), _MOST_LIMITS) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _plan(run: Run, entries: Sequence[Entry]) -> Remedy:
    """What helps, without the tests."""
    worst = entries[0]
    test, snapshot, command = worst.test, worst.test.snapshot, f"pytest {_TESTS}"
    on_cpu = isinstance(worst, Row) and worst.profile.on_cpu
    fix = fix_words(worst.causes, on_cpu=on_cpu)
    if snapshot is not None:
        alone = _SNAPSHOTS.get(snapshot.state)
        kept = (one.test.snapshot for one in entries)
        is_accepted = all(one is not None and one.accepts for one in kept)
        if is_accepted or (alone and not any(_raised(test.verdicts))):
            if alone:
                return Remedy("", alone, _accepting(snapshot.device))
            on = _on(snapshot.device)
            accept = f"{IF_INTENDED}, accept it in the{_ACCEPT}{on}"
            return Remedy(fix, RERUN, command + on, accept)
    conditions = [one.conditions for one in test.profiles]
    conditions += (one for of in test.comparisons for one in of.conditions)
    rounds = [one.rounds for one in test.verdicts if one.outcome == "undecided"]
    if worst.told == "undecided" and any(one.contended for one in conditions):
        pids = {str(process.pid) for one in conditions for process in one.contenders}
        others = f"process {' and '.join(sorted(pids))}" if pids else "other work on this GPU"
        return Remedy(f"stop {others}", RERUN, command)
    if worst.told == "undecided" and any(rounds):
        more = f"{command} --kernelprof-rounds={max(12, 2 * max(rounds))}"
        raised = _listed(_raised(test.verdicts, "undecided")) or "more"
        allow = f"if it stays undecided, allow {raised} at {_place_of_limits(worst)}"
        return Remedy("", "take more rounds", more, allow)
    if worst.told in records.FAILED_OTHERWISE:
        hints = filter(None, (hint_of(one.text) for one in worst.causes))
        return Remedy(next(hints, ""), RERUN, command)
    if not isinstance(worst, Row):
        return Remedy(COMPARED, RERUN, command)
    profile = worst.profile
    if worst.told == "incomplete":
        advised = filter(None, map(_ADVISED.search, profile.integrity.problems))
        what = next((one[1] for one in advised), "")
        return Remedy(what, RERUN if what else "run these tests alone", command)
    command = again_command(_TESTS, profile)
    if profile.one_shot and not profile.label and not test.limits:  # a whole test, by this option
        command += " --kernelprof-all --kernelprof-stacks"
    sources = {one.source for one in profile.verdicts if one.outcome in ("failed", "undecided")}
    for baseline in run.baselines:
        if baseline.source != "snapshot" and baseline.source in sources:
            name = baseline.name.partition(" (")[0]
            which = "-python" if baseline.source == "environment" else ""
            options = [f"--kernelprof-against{which}={name}"]
            if baseline.python:
                options.append(f"--kernelprof-against-python={baseline.python}")
            return _compared_again(entries, fix, name, f"{command} {shlex.join(options)}")
    verdicts = [verdict for one in entries for verdict in one.test.verdicts]
    intended = intended_words(verdicts, limits=_limits_of(entries))
    cure = cure_words(profile, profile.verdicts, worst.causes) or fix
    return Remedy(cure, RERUN, command, intended)


def _compared_again(entries: Sequence[Entry], fix: str, name: str, command: str) -> Remedy:
    """What helps against a revision or an earlier run."""
    verdicts = [one for entry in entries for each in entry.each for one in each.test.verdicts]
    at = _place_of_limits(entries[0]) if len(entries) == 1 else ""
    if entries[0].told != "undecided":
        intended = intended_words(verdicts, name, _limits_of(entries), at)
        return Remedy(fix, f"{RERUN} against {name}", command, intended)
    most = _slowest(verdicts)
    if most <= 0:
        return Remedy("", f"{RERUN} against {name}", command)
    slowest = f"the slowest pair is {wording.percent(most)}"
    allow = f"{slowest}: if you accept that, allow {_margin_words(most, at)}"
    return Remedy("", f"compare with {name} again on a quiet GPU", command, allow)


def _slowest(verdicts: Iterable[Verdict]) -> float:
    """By which share the slowest round was slower than the baseline's; 0 where none was timed."""
    compared = (one.comparison for one in verdicts if one.comparison is not None)
    pairs = (pair for one in compared if one.paired is not None for pair in one.paired.pairs)
    return max((pair.ratio for pair in pairs), default=1.0) - 1


def _margin_words(share: float, at: str) -> str:
    margin = f"kernelprof(margin='{math.ceil(share / _MARGINS) * _MARGINS * 100:.0f}%')"
    return f"{margin} at {at}" if at else margin


def intended_words(
    verdicts: Sequence[Verdict], base: str = "", limits: str = "", at: str = ""
) -> str:
    """Return what to do where what fails a test is intended; empty where nothing helps.

    Args:
        base: the name of a revision or an earlier run that it is worse than. limits: instead of
            what the verdicts say. at: the line that has the limits and options of the test.
    """
    raised = _listed(_raised(verdicts))
    named = limits or (f"{raised} at {at}" if at else raised)
    told = [f"allow {named}"] if raised else []
    over = [one for one in verdicts if one.outcome == "failed"]
    failed = [one.comparison for one in over if one.comparison is not None]
    most, worse = _slowest(over), {delta.name for one in failed for delta in one.worse}
    on = _on("cpu" if any(one.counted == "operators" for one in failed) else "cuda")
    sources = {one.source for one in failed}
    until = "" if "environment" in sources else f" until {base or 'the baseline'} has this change"
    if most > 0 and not worse:
        margin = f"{_margin_words(most, '' if told else at)}{until}"
        return f"{IF_INTENDED}, {f'{told[0]} and' if told else 'allow'} {margin}"
    if most > 0 or sources & {"run", "environment"} or not _ACCEPTED.issuperset(worse):
        told.append(f"run with --kernelprof-warn-only (all tests only warn){until}")
    # A snapshot accepts no forbidden kernel.
    elif sources and (told or sources - {"snapshot"}) and all(v.metric for v in over if v.of_limit):
        told.append(f"accept it in a{_ACCEPT}{on}")
    return f"{IF_INTENDED}, {', and '.join(told)}" if told else ""


_ACCEPTED = frozenset(("kernels", "memcpys", "memcpy_bytes", *KEPT_COUNTS))
"""What a snapshot accepts, also against a revision."""
_MARGINS = 0.05
"""Margins that are advised are multiples of it, so that one command is for several tests."""


_SNAPSHOTS: dict[TestState | None, str] = {
    "changed": "accept the change if it is intended",
    "missing": "record a snapshot for this device",
}
"""What an update of snapshots does where none is exceeded."""


def told_by(error: str) -> tuple[str, str]:
    """Return the first sentence of an error, and the others."""
    first, *rest = re.split(r"\. |(?<=\?) ", error, maxsplit=1)
    return first, "".join(rest)


def hint_of(error: str) -> str:
    """Return what to do about an error of ours, by its words; empty where these do not say it."""
    hint = told_by(error)[1]
    return hint[:1].lower() + hint[1:] if "(see docs/" in hint else ""


def fix_words(causes: Sequence[Cause], *, on_cpu: bool) -> str:
    """Return what to do about what is worse than a baseline."""
    if new := [wording.brief(one) for one in causes if one.sign == "+"]:
        if all(_NUMBER.sub("", one).endswith(_COPY) for one in new):
            return f"avoid the added {'copies' if new[1:] else 'copy'} (keep layout and dtype)"
        which = f"{_NOUNS[on_cpu]}s, or fuse them" if new[1:] else f"{_NOUNS[on_cpu]}, or fuse it"
        return f"remove the added {which} (torch.compile)"
    if rank := _of_one_rank(causes):
        return f"remove the kernel that only rank {rank} launches"
    slower = _after(wording.SLOWER, causes)
    named = f"these {len(slower)} kernels" if slower[1:] else "".join(slower).partition(",")[0]
    return f"find what slows down {named} (shapes, dtype, layout)" if slower else "undo the change"


def _of_one_rank(causes: Iterable[Cause]) -> str:
    """The rank that alone has some kernel; empty where there is none."""
    return next((text.partition(" ")[0] for text in _after(wording.ONLY, causes)), "")


def _after(words: str, causes: Iterable[Cause]) -> list[str]:
    """What causes say that begin with some words, without these."""
    return [one.text.removeprefix(words) for one in causes if one.text.startswith(words)]


def _accepting(device: str) -> str:
    return f"pytest {_TESTS} {_UPDATE}{_on(device)}"


def _on(device: str) -> str:
    return " --kernelprof-device=cpu" if device == "cpu" else ""


# What to do about broken limits.

_COPY = "elementwise [copy]"
_FEWER = "launch fewer kernels (fuse them, torch.compile)"
_CURES = {
    **dict.fromkeys(("kernels", "launches"), _FEWER),
    **dict.fromkeys(("cuda", "throughput", "bandwidth"), "make the slowest kernel faster"),
    "latency": "spend less time on the host (CUDA graph, torch.compile)",
    "launch": "spend less time on the host (CUDA graph, torch.compile)",
    **dict.fromkeys(("syncs", "would"), "keep values on the GPU (no .item() or .cpu())"),
    "memcpys": "copy less often",
    "memcpy": "copy less",
    "peak": "allocate less",
    "allocations": "allocate less often",
    "exposed": "overlap communication with other work",
    **dict.fromkeys(("registers", "shared", "spills"), "use smaller tiles or other num_warps"),
    "recompiles": "find what compiles again with TORCH_LOGS=recompiles",
    "jit": "warm up with these arguments, or list them in do_not_specialize",
    "autotunes": "warm up with these arguments, or choose the configuration yourself",
    "graph": "find what breaks the graph with TORCH_LOGS=graph_breaks",
    "forbid": "avoid the forbidden kernel",
    "expect": "change the code, or the kernels that the test expects",
}
"""By the first word of the metric, of limits on names by their own."""
_SPARE = 1.05
"""A time that is raised gets so much more than was measured: else the next run is undecided."""


def cure_words(profile: Profile, verdicts: Sequence[Verdict], causes: Sequence[Cause] = ()) -> str:
    """Return what to do about broken limits: ``avoid the 2 copies``; empty where none is broken.

    Args:
        profile: what ran. verdicts: of it. causes: why they are broken.
    """
    over = [one for one in verdicts if one.of_limit and one.outcome == "failed"]
    cures = dict.fromkeys(_cure_of(one, wording.judged_rank(profile, one)) for one in over)
    what = " and ".join(list(cures)[:2])
    for one in causes:
        name, takes, chain = one.text.partition(" takes ")
        faster = f"{_NUMBER.sub('', name.rpartition('; ')[2])} faster"
        if ", from aten::" in chain:  # a kernel of a library, which nobody edits
            at = f" at {wording.line_of(one.place)}" if one.place else ""
            faster = f"the {chain.rpartition('::')[2]}{at} cheaper (shapes, dtype, layout)"
        what = what.replace("the slowest kernel faster", faster) if takes else what
    if over and (any(one.sign == "+" for one in causes) or _of_one_rank(causes)):
        what = fix_words(causes, on_cpu=any(one.device == "cpu" for one in over))
    return what


def _cure_of(verdict: Verdict, profile: Profile) -> str:
    cure = _CURES.get((verdict.metric or verdict.limit).split("_")[0], "change the code")
    if cure != _FEWER or verdict.device == "cpu":
        return "call fewer operators" if cure == _FEWER else cure
    copies = sum(one.short_name.endswith(_COPY) for one in profile.kernels)
    excess = (verdict.measured or 0) - (verdict.allowed or 0)
    avoid = f"avoid the {f'{copies} copies' if copies > 1 else 'copy'} (keep layout and dtype)"
    return avoid if 0 < excess <= copies and not verdict.qualifier else cure


def _raised(verdicts: Iterable[Verdict], outcome: str = "failed") -> Iterator[str]:
    """Broken limits as they would hold: ``max_kernels(5)``, ``max_cuda_time('265us')``."""
    for one in verdicts:
        is_over = one.of_limit and one.outcome == outcome and one.metric and one.measured
        if not is_over or one.unit == "times":  # of callables, which asks for more
            continue
        is_spared = one.unit in WITH_INTERVAL
        value = repr(_spared(one)) if is_spared else f"{one.measured:.0f}"
        if one.unit == "bytes" and one.metric != "spills":
            value = repr(f"{value} B")
        word = "direction" if one.limit.startswith("max_memcpy") else "match"
        value += f", {word}={one.qualifier!r}" * bool(one.qualifier)
        value += f", allow={[*one.allow]}" * bool(one.allow)
        yield f"{one.limit}({value}){' (5 % to spare)' * is_spared}"


def _spared(verdict: Verdict) -> str:
    """A time or share 5 % above what was measured, of three digits; a rate as much below."""
    most = max(verdict.measured or 0.0, verdict.high or 0.0) * _SPARE
    if verdict.is_floor:
        most = (verdict.low or verdict.measured or 0.0) / _SPARE
    if verdict.share is not None and verdict.share_of:
        return f"{most / verdict.share_of * 100:.3g}%"
    rounded = float(f"{most:.3g}")
    return f"{rounded:.10g}us" if verdict.unit == "us" else wording.amount(verdict.unit, rounded)


_LOOSE = 2.0


def hints_of(rows: Sequence[Row]) -> tuple[Hint, ...]:
    """Exact limits above the largest value of their test, and times above twice theirs. Of one
    marker on a parametrised test the largest value of all counts."""
    seen: defaultdict[tuple[str, str, float], list[tuple[Row, Verdict]]] = defaultdict(list)
    for row in rows:
        for one in (one for one in row.profile.verdicts if one.of_limit and not one.is_floor):
            if one.measured is not None and one.allowed and one.metric in METRICS:
                stem = row.test.id.partition("[")[0]
                seen[stem, wording.title(one), one.allowed].append((row, one))
    found = []
    for (stem, limit, allowed), several in seen.items():
        verdicts = [verdict for _, verdict in several]
        most, spec = max(one.measured or 0.0 for one in verdicts), METRICS[verdicts[0].metric]
        passed = all(one.outcome == "passed" and one.share is None for one in verdicts)
        tight = allowed <= (_LOOSE * most if spec.kind == "timed" else most)
        # Of a test that ends otherwise nobody knows what its code takes as it should be.
        if passed and not tight and all(row.told == "passed" for row, _ in several):
            needs = wording.amount(spec.unit, most)
            words = f"allows {wording.amount(spec.unit, allowed)}, needs {needs}"
            name = several[0][0].name.partition("[")[0]
            found.append((most / allowed, stem, Hint(name, limit, words)))
    return tuple(hint for *_, hint in sorted(found, key=lambda one: one[:2]))


def unjudged_words(tests: Iterable[Test]) -> list[str]:
    """Limits that say nothing of the device that was measured, beside others of their test that
    were judged, by the reason: ``max_syncs not judged in 2 tests (not applicable on the CPU)``."""
    judged = (one for one in tests if not one.not_judged and one.outcome != "rerun")
    limits = ((test.id, one) for test in judged for one in wording.limits_of(test.profiles))
    left = (one for one in limits if one[1].outcome == "not judged")
    return [
        f"{', '.join(dict.fromkeys(wording.title(limit) for _, limit in several))} not judged in "
        f"{wording.count(len({test for test, _ in several}), 'test')} ({why})"
        for why, several in wording.grouped(left, lambda one: one[1].why).items()
    ]
