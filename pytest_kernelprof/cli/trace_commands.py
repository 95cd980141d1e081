"""The commands on recorded traces: ``kernelprof show``, ``check``, ``diff`` and ``open``."""

from __future__ import annotations

import argparse
import os
import re
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from pytest_kernelprof.analysis.collectives import with_waiting
from pytest_kernelprof.analysis.round_events import operator_tree
from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.api import Profile as Loaded
from pytest_kernelprof.comparison.judge import compare_traces
from pytest_kernelprof.comparison.kernel_diff import diff_profiles, side_by_side
from pytest_kernelprof.errors import MarkerError, TraceError
from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import JUDGED, parse_words
from pytest_kernelprof.profiler.operators import registered_operators
from pytest_kernelprof.records.codec import encode
from pytest_kernelprof.records.comparison import TracesComparison
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.report import commands
from pytest_kernelprof.report.failure import failure_text
from pytest_kernelprof.report.tables import Span, print_lines, style_of_output
from pytest_kernelprof.summary import wording
from pytest_kernelprof.summary.ranks import Rank, odd_ones
from pytest_kernelprof.summary.verdicts import verdict_line
from pytest_kernelprof.trace.columns import Trace
from pytest_kernelprof.trace.correlation import of_each_process, reading_of
from pytest_kernelprof.trace.reader import read_trace
from pytest_kernelprof.trace.vocabulary import origin_of
from pytest_kernelprof.units import printable

# kernelprof show


def show(chosen: argparse.Namespace) -> int:
    """Print the kernels; return 1 if the trace is incomplete, else 0.

    Raises:
        TraceError: a trace cannot be read, or an option takes one trace and there are several.
    """
    if len(chosen.traces) > 1 or Path(chosen.traces[0]).is_dir():
        for option in ("json", "operators", "sort"):
            if getattr(chosen, option):
                raise TraceError(f"--{option} takes one trace, and {len(chosen.traces)} were given")
        return _print_ranks(*ranks_in(chosen.traces, chosen.max_size))
    trace = read_trace(chosen.traces[0], max_bytes=chosen.max_size)
    processes = of_each_process(trace) if not (chosen.json or chosen.operators) else [trace]
    if len(processes) > 1:
        return _print_ranks(ranks_of_file(processes, chosen.traces[0]), {})
    reading, style = reading_of(trace), style_of_output()
    facts = session_facts(reading)
    profile = profile_of(facts, trace.recording)
    wanted = commands.Wanted(chosen.sort, chosen.top, chosen.all)
    if chosen.json:
        print(encode(profile).decode())
    elif chosen.operators:
        tree = commands.tree_lines(operator_tree(reading, facts.fullest), profile, wanted, style)
        print_lines([*commands.verdict_lines(profile, style), (), *tree])
    else:
        print_lines(commands.trace_lines(profile, origin_of(trace), wanted, style))
    return 0 if profile.integrity.complete else 1


def _print_ranks(ranks: Sequence[Rank], unread: dict[str, str]) -> int:
    odd = odd_ones(ranks)
    diffs = {one.rank.name: diff_profiles(one.like.profile, one.rank.profile) for one in odd}
    print_lines(commands.rank_lines(ranks, unread, diffs, style_of_output()))
    return 0 if all(one.profile.integrity.complete for one in ranks) and not unread else 1


# kernelprof check


def check(chosen: argparse.Namespace) -> int:
    """Judge a trace by limits: print the failure text of a test for those that are broken, and a
    line for each other one; last whether the trace is complete. Return 0 if all limits are kept, 1
    if one is broken, else 2.

    Raises:
        TraceError: the trace cannot be read, as of ``Profile.load``.
        MarkerError: a limit is not of its form, or none is given.
    """
    given = [(kind, words) for kind in JUDGED for words in getattr(chosen, kind.name)]
    if not given:
        raise MarkerError(f"no limit is given, for example {JUDGED[0].words}; choose one or more")
    limits = [parse_words(*one) for one in given]
    loaded = Loaded.load(
        chosen.trace, process=chosen.process, step=chosen.step, max_bytes=chosen.max_size
    )
    found = evaluate(loaded.record, limits, registered_operators)
    outcomes, told = {one.outcome for one in found}, {"failed", "undecided", "not judged"}
    if not outcomes.isdisjoint(told - {"not judged"}):
        judged = structs.replace(loaded.record, verdicts=found)
        print(failure_text(Test("", (judged,))))
        found = tuple(one for one in found if one.outcome not in told)
    for one in found:
        print(printable(f"{one.outcome}: {verdict_line(one)}"))
    print_lines(commands.verdict_lines(loaded.record, style_of_output()))
    return 1 if "failed" in outcomes else 0 if outcomes == {"passed"} else 2


# kernelprof diff


def diff(chosen: argparse.Namespace) -> int:
    """Print the differences, process by process.

    Raises:
        TraceError: a trace cannot be read, or both count different things.
    """
    old, new = (_profiles(path, chosen.max_size) for path in (chosen.old, chosen.new))
    named = _pairs(old, new)
    pairs = list(named.values())
    for pair in pairs:
        counts = {one.metrics["kernels"].why for one in pair if one.environment.kind == "cpu"}
        if len(counts) > 1:
            told = f"{chosen.old} and {chosen.new} count {' and '.join(sorted(counts))}"
            raise TraceError(f"{told}: record both with save_trace, or both with torch.profiler")
    found = TracesComparison(tuple(compare_traces(*pair) for pair in pairs), len(old), len(new))
    if chosen.json:
        print(encode(found).decode())
        return 0
    style = style_of_output()
    for name, pair, one in zip(named, pairs, found.processes, strict=True):
        if max(len(old), len(new)) > 1:
            print_lines([(Span(style.say(f"{name}:")),)])
        print_lines(commands.side_by_side_lines(one, side_by_side(*pair), style, most=chosen.lines))
    if commands.processes_words(found):
        print(commands.processes_words(found))
    return 0


def _profiles(path: str, largest: int) -> dict[str, Profile]:
    """Return the profile of each process of a trace, or of each rank of a folder, by name.

    Raises:
        TraceError: one of them cannot be read.
    """
    ranks, unread = ranks_in([path], largest)
    for name, why in unread.items():
        raise TraceError(f"{path}: {name} cannot be read: {why}")
    if Path(path).is_dir():
        return {f"rank {one.name}": one.profile for one in ranks}
    return {f"process {number}": one.profile for number, one in enumerate(ranks, 1)}


def _pairs(
    old: Mapping[str, Profile], new: Mapping[str, Profile]
) -> dict[str, tuple[Profile, Profile]]:
    """Pair the profiles of equal names; if there are none, in order, as for a folder and a file.

    Raises:
        TraceError: both are folders, and no rank is in both.
    """
    if both := {name: (old[name], new[name]) for name in old if name in new}:
        return both
    if all(name.startswith("rank ") for name in (*old, *new)):
        raise TraceError(
            f"no rank is in both folders: {', '.join(old)} in one, {', '.join(new)} in the other"
        )
    return dict(zip(old, zip(old.values(), new.values(), strict=False), strict=False))


# kernelprof open

PORT = 9001
"""The only local port that Perfetto's Content-Security-Policy allows it to read from."""

_OTHERWISE = (
    "without a network, use `kernelprof show`, or drag the file into the window of a local Perfetto"
)
_NOT_READ = "a browser may ask whether the page may access this machine: allow that"


def open_in_perfetto(chosen: argparse.Namespace, port: int = PORT) -> int:
    """Serve the trace until it was read; return 1 if it was not.

    Raises:
        TraceError: the trace cannot be read, or the port is not available.
    """
    from pytest_kernelprof.cli.loopback import HOST, OneFile  # loads an HTTP server

    trace = printable(chosen.trace)
    file = Path(read_trace(chosen.trace, max_bytes=chosen.max_size).source)
    try:
        server = OneFile(file, port)
    except OSError as error:
        raise TraceError(
            f"port {port} of {HOST} is not available ({error.strerror}), and Perfetto reads from "
            "no other: end the process that uses it (another `kernelprof open`, "
            "`trace_processor --httpd`), or open https://ui.perfetto.dev and drag "
            f"{trace} into its window"
        ) from None
    with server:
        print(f"{trace} for Perfetto, until it is read:\n{server.link}", flush=True)
        if chosen.no_browser or not webbrowser.open(server.link):
            print(
                "open that address in a browser of this machine, or of another one connected with "
                f"`ssh -L {port}:{HOST}:{port}`;\n{_OTHERWISE}",
                flush=True,
            )
        try:
            read = server.read.wait(chosen.timeout)
        except KeyboardInterrupt:
            read = False
    print("it was read" if read else f"nothing has read it: {_NOT_READ}")
    return 0 if read else 1


# Traces of several ranks: the files of a folder, and the rank of each.

_RANK = re.compile(r"rank[-_ ]?(\d{1,6})", re.IGNORECASE)
_ENDINGS = (".json", ".json.gz")
_MOST_NAMED = 10


def ranks_in(paths: Sequence[str], largest: int) -> tuple[list[Rank], dict[str, str]]:
    """Read the ranks of files and folders. A folder with several traces must have one per rank.

    Args:
        largest: the largest size of a file in bytes.

    Returns:
        The ranks in order, with the time that each waited for the others; and why files of folders
        are no traces, by name.

    Raises:
        TraceError: a named file is no trace, a folder has none or not one per rank, or nothing is
            a trace.
    """
    unread: dict[str, str] = {}
    names: dict[Path, str] = {}
    ranks: list[Rank] = []
    files = [file for one in paths for file in _files(Path(one))]
    for file in files:
        try:
            processes = of_each_process(read_trace(file, max_bytes=largest))
        except TraceError as error:
            if str(file) in paths:
                raise
            unread[file.name] = str(error).removeprefix(f"{file}: ")
            continue
        names[file] = _name(file, processes[0])
        ranks += ranks_of_file(processes, str(file), names[file])
    if not ranks:
        raise TraceError(f"{paths[0]}: none of its {len(files)} files is a trace")
    for folder in filter(os.path.isdir, paths):
        there = {file.name: rank for file, rank in names.items() if file.parent == Path(folder)}
        numbers = {rank for rank in there.values() if rank.isdecimal()}
        if len(numbers) < len(there) > 1:  # such as the traces of many tests
            raise TraceError(
                f"{folder}: {len(there)} traces with {len(numbers)} rank numbers, not one of each "
                "rank. Name files: kernelprof show FILE, or kernelprof diff OLD NEW. The first "
                f"files: {', '.join(list(there)[:_MOST_NAMED])}"
            )
    return _with_waiting(_in_order(ranks)), unread


def ranks_of_file(processes: Sequence[Trace], file: str, name: str = "") -> list[Rank]:
    """Return the ranks of the processes of one file. Several are named by their order, as the file
    does not say which is which.

    Args:
        name: the name of the file's rank.
    """
    if len(processes) == 1:
        number = int(name) if name.isdecimal() else None
        return [Rank(name, file, structs.replace(_profile(processes[0]), rank=number))]
    numbered = enumerate(map(_profile, processes))
    return [Rank(f"{name}.{at}" if name else str(at), file, one) for at, one in numbered]


def _profile(trace: Trace) -> Profile:
    return profile_of(session_facts(reading_of(trace)), trace.recording)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.name.endswith(_ENDINGS))
    if not found:
        raise TraceError(f"{path}: the folder has no trace (*.json, *.json.gz)")
    return found


def _name(file: Path, trace: Trace) -> str:
    """Return the name of a file's rank: the number that the profiler wrote, else that in the file's
    name, else the file's name."""
    if trace.rank is not None:
        return str(trace.rank)
    numbered = _RANK.search(file.name)
    return str(int(numbered[1])) if numbered else file.name.partition(".")[0]


def _in_order(ranks: Sequence[Rank]) -> list[Rank]:
    """Sort by number; ranks of equal names by their files' names instead."""
    if len({one.name for one in ranks}) < len(ranks):
        ranks = [
            Rank(f"{one.name} ({one.file})", one.file, structs.replace(one.profile, rank=None))
            for one in ranks
        ]
    return sorted(ranks, key=lambda one: wording.natural(one.name))


def _with_waiting(ranks: Sequence[Rank]) -> list[Rank]:
    """Add the time that each waited for the others, if all have a number."""
    if any(one.profile.rank is None for one in ranks):
        return list(ranks)
    found = {one.rank: one for one in with_waiting([one.profile for one in ranks])}
    return [replace(one, profile=found[one.profile.rank]) for one in ranks]
