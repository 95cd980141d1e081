"""What pytest's reports say of a test: what it took, the line and the words of a failure without
our frames, properties for JUnit files, and notes at the end of the run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
from itertools import groupby
from typing import TYPE_CHECKING

import _pytest
import pluggy
import pytest
from _pytest._code import code
from _pytest.outcomes import OutcomeException

from pytest_kernelprof import errors, system, units
from pytest_kernelprof.limits.marks import meant_by_strays
from pytest_kernelprof.plugin.collector import END_NOTES, EXPECTED_ATTRIBUTE, outcome_of
from pytest_kernelprof.plugin.items import CUDA_HINT, run_state, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from _pytest._io import TerminalWriter

    from pytest_kernelprof.records.document import Comparison, Test
    from pytest_kernelprof.records.profile import Profile

_STRAY = (
    "@pytest.mark.{0}(...) limits nothing in {tests}: did you mean {1}? If {0} is your own "
    "marker, register it"
)


def expect(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note the tests that this run has to account for: those that concern us."""
    from pytest_kernelprof.plugin.run_record import portable

    tests, state = {}, run_state(config)
    for item in items:
        place = portable(state_of(item).place, str(config.rootpath))
        tests[item.nodeid] = (state_of(item).promises, place.file, place.line)
    if hasattr(config, "workerinput"):
        state.expected = json.dumps(tests)
    else:
        state.collector.expect(tests)


def tell_more(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach what the test took to its report, and tell an error of ours as what it is."""
    state = state_of(item)
    if state.run.expected:
        setattr(report, EXPECTED_ATTRIBUTE, state.run.expected)
        state.run.expected = ""
    raised = call.excinfo.value if call.excinfo is not None else None
    not_judged = _why_not_judged(item, call, raised)
    if not_judged and raised is None:
        skip_unexpected_pass(report, item, not_judged)
    # Subtests report while their test still runs; there is nothing to tell until it is judged.
    is_compared = call.when == "call" and state.snapshot is not None
    has_taken = is_compared or (call.when != "setup" and state.taken is not None)
    if has_taken or not_judged or isinstance(raised, errors.KernelprofError):
        from pytest_kernelprof.plugin.run_record import attach_taken

        attach_taken(item, report, not_judged)
    if call.when == "teardown":
        _attach_notes(item, report)
        if state.test is not None:
            state.test.ledger.close()
            state.test = None  # profiles must not outlive their test
    if raised is not None:
        tell(report, item, raised)
        hint_at_cuda(report, item, raised)
    verdict = _verdict_of(report, raised, not_judged)
    if verdict and state.concerns_us:
        tell_verdict(item, report, verdict)


def _attach_notes(item: pytest.Item, report: pytest.TestReport) -> None:
    """Attach what the run says of the test at its end: markers that probably mean a limit, notes of
    its ledger, and versions newer than those that were tried."""
    notes = [_STRAY.format(*pair, tests="{tests}") for pair in meant_by_strays(item).items()]
    if (test := state_of(item).test) is not None:
        torch = str(getattr(sys.modules.get("torch"), "__version__", ""))
        versions = {"pytest": pytest.__version__, "python": platform.python_version()}
        newer = system.newer_than_tried({"torch": torch, **versions})
        notes += filter(None, [*test.ledger.end_notes, "; ".join(newer)])
    if notes:
        setattr(report, END_NOTES, notes)


def _verdict_of(report: pytest.TestReport, raised: BaseException | None, not_judged: str) -> str:
    """How a test fared, as far as no profile of it says so; empty for all others."""
    if not_judged:
        return "not judged"
    if not report.failed:
        return ""
    if isinstance(raised, errors.LimitExceeded):
        return "failed"
    if isinstance(raised, errors.IncompleteProfile):
        return "incomplete"
    ended = outcome_of(report)
    return "failed otherwise" if ended == "failed" else ended


def _why_not_judged(
    item: pytest.Item, call: pytest.CallInfo[None], raised: BaseException | None
) -> str:
    """Why none of the limits of a test was judged that did not fail; empty if some were."""
    state = state_of(item)
    if isinstance(raised, errors.NotJudged):
        test = state.test if state.test is not None and state.test.compiles else None
        return "" if test and (test.ledger.has_judged or not state.promises) else raised.why
    if raised is not None or call.when != "call" or not state.concerns_us:
        return ""
    promises, test = state.promises, state.test
    if test is None:
        return (state.why_unmeasured or "not measured").partition(":")[0] if promises else ""
    ledger = test.ledger
    if ledger.has_judged or ledger.waits_for_fixtures or not (promises or ledger.left_out):
        return ""
    without = "--kernelprof-update" if state.run.settings.update else "no snapshot of this device"
    if len(ledger) and not ledger.unmeasured:  # also where a trace was loaded without a device
        return without
    return (state.why_unmeasured or ledger.unmeasured or "not measured").partition(":")[0]


def tell_other_ranks(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """That the test's call, or its teardown, has ended here, so that no other rank waits in it."""
    if "torch" not in sys.modules or not state_of(item).concerns_us:
        return
    from pytest_kernelprof.distributed.agreement import left_test

    how, raised = "", call.excinfo
    if raised is not None:
        how = f" ({raised.typename}: {errors.first_line(raised.value)[:_LONGEST]})"
    left_test(item.nodeid, f"has ended the test{how}")


def tell_end_of_run(config: pytest.Config) -> None:
    """That this rank makes no call any more, so that no other one waits for it."""
    if "torch" in sys.modules and run_state(config).measures:
        from pytest_kernelprof.distributed.agreement import left_run

        left_run()


def tell_open(config: pytest.Config) -> None:
    """Say in the JUnit file, before it is written, what of the run was not judged."""
    if config.getoption("xmlpath", None) and not hasattr(config, "workerinput"):
        tests = tuple(run_state(config).collector.tests())
        if tests:  # else nothing of ours is loaded
            from _pytest.junitxml import xml_key

            from pytest_kernelprof.records.document import Run
            from pytest_kernelprof.summary.run import summary_of

            words = summary_of(Run(tests)).open
            if words and xml_key in config.stash:
                config.stash[xml_key].add_global_property(f"{_PREFIX}not_judged", words)


def show(terminal: pytest.TerminalReporter, taken: list[Test]) -> None:
    """Write at the end what tests took, as far as that was asked for; how the run compares with a
    baseline; in any case what was not judged, or not decided."""
    from pytest_kernelprof.records.document import Run
    from pytest_kernelprof.report.terminal import open_lines, write_report
    from pytest_kernelprof.summary.run import summary_of

    state = run_state(terminal.config)
    if state.quiet or state.serves:
        return
    run = state.run_of(taken) if state.run_of is not None else Run(tuple(taken))
    asked, shown = state.settings.report and state.run_of is not None, state.in_its_table
    if asked or any(one.source != "snapshot" for one in run.baselines):
        told = _told_above(terminal)
        write_report(terminal, run, brief=not asked, told=told, warn_only=state.settings.warn_only)
    elif any(one.id in shown and one.profiles for one in taken):  # beside pytest-benchmark's table
        write_report(terminal, run, only=shown, told=_told_above(terminal))
    elif terminal.verbosity > -2:
        for line in open_lines(summary_of(run)):
            terminal.write_line(line, yellow=True)


def _told_above(terminal: pytest.TerminalReporter) -> frozenset[str]:
    """The tests whose failures are ours, and shown in whole."""
    if terminal.config.option.tbstyle in ("no", "line"):
        return frozenset()
    reports = (*terminal.stats.get("error", ()), *terminal.stats.get("failed", ()))
    return frozenset(one.nodeid for one in reports if getattr(one, "kernelprof_told", False))


_FOLDERS = [os.path.dirname(one) + os.sep for one in (_pytest.__file__, pluggy.__file__)]
_INNER = (system.PACKAGE, *_FOLDERS, contextlib.__file__)

# Deliberate errors of ours; any other that our own code raises is a fault of it, told with frames.
_DELIBERATE = (errors.KernelprofError, OutcomeException, TypeError, RuntimeError)

# After which nothing is known of what the test was to show: an ERROR, whatever it expects.
_NO_NUMBER = (
    errors.IncompleteProfile,
    errors.MarkerError,
    errors.CannotMeasureError,
    errors.SnapshotError,
    errors.TraceError,
)
_OURS = (errors.KernelprofError, errors.LimitExceeded, errors.WrongResult)

# What torch, Triton and libraries on them say where there is no device.
_NEEDS_CUDA = r"(?i)cuda|nvidia|active drivers?\b|\bgpus?\b"


def hide_our_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Take our frames out of what was raised, so that no way to show it has them: of the user's
    code that we called, and of our own errors, whose last frame is then the line that called us."""
    for error in _chain(excinfo.value):
        _without_our_frames(error)
    excinfo.traceback = code.Traceback(excinfo.tb)
    if isinstance(excinfo.value, _OURS) and _by_a_hook(excinfo.value):
        # Told without frames (below); pytest would read the source of each before.
        excinfo.traceback = excinfo.traceback[-1:]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those before it; what only tells how we found our own error is cut off."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        yield error
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None:
            return
        if isinstance(error, errors.KernelprofError) and all(map(_is_ours, _entries(before))):
            error.__cause__, error.__suppress_context__ = None, True
            return
        error = before


def _without_our_frames(error: BaseException) -> None:
    entries = _entries(error)
    if not entries or (_is_ours(entries[-1]) and not isinstance(error, _DELIBERATE)):
        return
    ours = [_is_ours(entry) for entry in entries]
    for i in reversed(range(len(entries))):  # our context managers come with frames of contextlib
        beside = ours[i - 1 : i] + ours[i + 1 : i + 2]
        ours[i] |= entries[i].tb_frame.f_code.co_filename == contextlib.__file__ and any(beside)
    if kept := [entry for entry, is_ours in zip(entries, ours, strict=True) if not is_ours]:
        for entry, following in zip(kept, [*kept[1:], None], strict=True):
            entry.tb_next = following
        error.__traceback__ = kept[0]


def _entries(error: BaseException) -> list[TracebackType]:
    found, entry = [], error.__traceback__
    while entry is not None:
        found.append(entry)
        entry = entry.tb_next
    return found


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(system.PACKAGE)


def tell(report: pytest.TestReport, item: pytest.Item, error: BaseException) -> None:
    """Have a report tell an error of ours as what it is: one that could not be judged is an ERROR,
    also under ``xfail``; its summary begins with what is wrong; its place is the test's line, also
    where we skip it."""
    if isinstance(report.longrepr, tuple):
        path, line, words = report.longrepr
        where = _place(item, error) if _by_a_hook(error) else (path, line)
        skipped = isinstance(error, errors.NotJudged)
        report.longrepr = (*where, f"Skipped: {error}" if skipped else words)
    if isinstance(error, _NO_NUMBER):
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)
        if report.when == "call":
            report.kernelprof_error = True  # type: ignore[attr-defined]
    if not isinstance(error, _OURS) or not report.failed:
        return
    says_all = isinstance(error, errors.LimitExceeded) or type(error) is errors.IncompleteProfile
    words = str(error) if says_all else f"{type(error).__name__}: {error}"
    if _by_a_hook(error) or not getattr(error, "pytrace", True):
        from pytest_kernelprof.records.profile import Place
        from pytest_kernelprof.report.failure import error_message

        path, line = _place(item, error)
        crash = code.ReprFileLocation(path, line, _first_line(words))
        if not isinstance(error, errors.LimitExceeded):
            words = error_message(words, Place(path, line))
        traceback = code.ReprTraceback(_entries_of(words), None, "value")
        report.longrepr = code.ReprExceptionInfo(traceback, crash)
        report.kernelprof_told = True  # type: ignore[attr-defined]
    elif getattr(report.longrepr, "reprcrash", None) is not None:
        report.longrepr.reprcrash.message = _first_line(words)  # type: ignore[union-attr]


def _first_line(words: str) -> str:
    """What pytest's short summary has, which in colours, on CI and with -vv repeats all that it is
    given: the first limit without what exceeds it."""
    from pytest_kernelprof.report.failure import MARGINS
    from pytest_kernelprof.summary.wording import more_exceeded

    first, *others = [one for one in words.splitlines() if not one.startswith(MARGINS)] or [""]
    return first + more_exceeded(sum(bool(re.match(_OF_LIMIT, one)) for one in others))


_OF_LIMIT = r"(?:(?:max|min|forbid|expect)_\w+[^:]*|worse than [^:]*|snapshot): "


def _entries_of(words: str) -> list[code.ReprEntry]:
    """What is wrong as pytest's own failures tell it, in red; the rest as it is."""
    from pytest_kernelprof.report.failure import MARGINS

    entries = []
    for wrong, lines in groupby(words.splitlines(), lambda line: not line.startswith(MARGINS)):
        told = [f"E   {line}" if wrong else line for line in lines]
        entries.append(code.ReprEntry(told, None, None, None, "short" if wrong else "value"))
    return entries


_CALL, _MARKS = "  measured at ", ("> ", "+ ", "? ", "~ ")
_PLACE = ("  at ", _CALL)
"""How the place of code begins, and a marked row."""
_CODE = re.compile(r"(  +(\S*\d)? \| )(.*)")
"""A line of code behind its number, or what stands below one."""
_FAR = 12 * " "
"""How what stands below a row begins."""


class _Marked(code.ReprEntry):
    """Lines of a failure, of which those that are marked and what to do stand out."""

    def toterminal(self, tw: TerminalWriter) -> None:
        from pytest_kernelprof.summary.advice import IF_INTENDED
        from pytest_kernelprof.summary.records import TO_DO

        is_light = is_red = False
        for line in self.lines:
            is_light = is_light or line.startswith(f"  {IF_INTENDED}")
            is_light = is_light and not line.startswith(4 * " ") and bool(line.strip())
            is_place = line.startswith(_PLACE)
            before, label, rest = line.partition(": " if is_place else f" {TO_DO}")
            if shown := _CODE.match(line):
                is_place, before, label, rest = True, shown[1], "", shown[3]
            is_more = is_red and line.startswith(_FAR)
            is_red = line.startswith(_MARKS) or is_more or bool(shown and not shown[2])
            tw.write(before + label if rest else "", bold=not is_place, cyan=is_place)
            tw.line(rest or line, red=is_red, light=is_light, cyan=is_place and not rest)


def fold_failures(config: pytest.Config) -> None:
    """Have the terminal tell what several failures have in common once, measured times and lines of
    limits apart: the later ones keep their verdicts and lines of code. ``-v`` has all of each."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    stats = getattr(terminal, "stats", {})
    first: dict[str, tuple[str, Sequence[str]]] = {}
    for report in (*stats.get("error", ()), *stats.get("failed", ())):
        # What another plugin has put in the place of ours is its own.
        traceback = getattr(getattr(report, "longrepr", None), "reprtraceback", None)
        entries = getattr(traceback, "reprentries", None)
        if not getattr(report, "kernelprof_told", False) or not entries:
            continue
        lines = [one.lines for one in entries]
        entries[:] = [
            one if one.style == "short" else _Marked(one.lines, None, None, None, "value")
            for one in entries
        ]
        entries.append(code.ReprEntry([""], None, None, None, "value"))  # apart from the next
        if getattr(terminal, "verbosity", 0) <= 0:
            _fold(lines[-1], report.nodeid, first)


def _fold(lines: list[str], test: str, first: dict[str, tuple[str, Sequence[str]]]) -> None:
    """Refer to the first failure with the same marked rows, or without any with the same lines
    below the first blank one, if they are many; leave out the lines of code that it has, too.

    Args:
        first: of such failures the test and the lines above.
    """
    from pytest_kernelprof.report.tables import wrapped

    at = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    shown, below = lines[:at], lines[at:]
    if len(below) < _WORTH_FOLDING:
        return
    marked = [line.lstrip("".join(_MARKS) + "0123456789.,") for line in below if line[:2] in _MARKS]
    marked = [re.sub("  \\S+::.*", "", line) for line in marked]  # which may go on below
    told = "\n".join(marked or below).replace(test, "")  # the command is of each
    known, said = first.setdefault(re.sub(_OF_EACH, " ", told), (test, shown))
    if known != test:
        same = [one for one in _parts(shown) if one in _parts(said)]
        labels = [label for _, *below in same for one in below if (label := one.strip(" |^"))]
        place = next((f", {one[0].strip()}" for one in same if one[0].startswith(_PLACE[0])), "")
        file, _, name = known.partition("::")
        told = f"same as {name if test.startswith(f'{file}::') else known}{place}"
        told += f": {labels[0]}" if len(labels) == 1 else ""
        new = (one for one in _parts(shown) if one not in same and not one[0].startswith(_CALL))
        same_as = wrapped(units.printable(told), _WIDE)
        lines[:] = [*(line for one in new for line in one), *(f"  {one}" for one in same_as)]


def _parts(lines: Iterable[str]) -> list[list[str]]:
    """Lines, each with what stands below it in its frame."""
    parts: list[list[str]] = []
    for line in lines:
        if parts and (shown := _CODE.match(line)) and not shown[2]:
            parts[-1].append(line)
        else:
            parts.append([line])
    return parts


_OF_EACH = r"(?<=\d)  +[\d.]+(?=  )|\d+\.\d+|(?<=\)) at\s+\S+:\d+|[ \\\n]+"
"""Measured times, the line that has the limits, and where lines are broken."""
_WORTH_FOLDING = 5
"""Lines."""
_WIDE, _LONGEST = 78, 300


def skip_unexpected_pass(report: pytest.TestReport, item: pytest.Item, why: str) -> None:
    """Skip a test that is expected to fail and passed while its limits were not judged, which may
    be what it is expected to fail by.

    Args:
        why: why they were not judged.
    """
    strict = str(report.longrepr).startswith("[XPASS(strict)]")
    if not (strict or (report.passed and hasattr(report, "wasxfail"))):
        return
    vars(report).pop("wasxfail", None)
    place = state_of(item).place
    words = f"Skipped: not judged: {why}; the test is marked xfail, and its body passed"
    report.outcome, report.longrepr = "skipped", (place.file, place.line, words)


def hint_at_cuda(report: pytest.TestReport, item: pytest.Item, error: BaseException) -> None:
    """Tell what to do beside an error that looks as if it came of a missing CUDA device."""
    is_missing = re.search(_NEEDS_CUDA, f"{type(error).__name__}: {error}")
    if report.failed and is_missing and state_of(item).why_unmeasured.startswith("no CUDA device"):
        add = getattr(report.longrepr, "addsection", None)
        if add is not None:
            add("kernelprof", CUDA_HINT)


def _by_a_hook(error: BaseException) -> bool:
    """Whether no line of the test raised it: its frames would only show pytest's code and ours."""
    files = [entry.tb_frame.f_code.co_filename for entry in _entries(error)]
    return all(file.startswith(_INNER) for file in files)


def _place(item: pytest.Item, error: BaseException) -> tuple[str, int]:
    """The line that made the call, as far as the error knows it, else the test's first."""
    frames = _entries(error)
    if frames and not _by_a_hook(error):
        return frames[-1].tb_frame.f_code.co_filename, frames[-1].tb_lineno
    place = error.place if isinstance(error, errors.LimitExceeded) else None
    place = place or state_of(item).place
    return place.file, place.line


_PREFIX = "kernelprof."
_VERDICT = f"{_PREFIX}verdict"


def forget_properties(item: pytest.Item) -> None:
    """Drop the properties of an earlier attempt, or of fewer profiles."""
    others = [one for one in item.user_properties if not str(one[0]).startswith(_PREFIX)]
    item.user_properties[:] = others


def tell_properties(
    item: pytest.Item, profiles: Sequence[Profile], comparisons: Sequence[Comparison]
) -> None:
    """Say what a test took, in place of what was said before."""
    from pytest_kernelprof.report.files import properties_of

    forget_properties(item)
    properties = properties_of(profiles, comparisons)
    item.user_properties += [(_PREFIX + name, value) for name, value in properties]


def tell_verdict(item: pytest.Item, report: pytest.TestReport, verdict: str) -> None:
    """Say how a test fared that its profiles do not say, unless they say that a limit is broken or
    a number missing."""
    for properties in (item.user_properties, report.user_properties):
        if dict(properties).get(_VERDICT) not in ("failed", "incomplete"):
            properties[:] = [one for one in properties if one[0] != _VERDICT]
            properties.append((_VERDICT, verdict))
