"""Traces of several ranks: the files of a folder, and which rank each is of."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from pytest_kernelprof.analysis.collectives import with_waiting
from pytest_kernelprof.analysis.session_profile import profile_of, session_facts
from pytest_kernelprof.errors import TraceError
from pytest_kernelprof.summary.ranks import Rank
from pytest_kernelprof.summary.words import natural
from pytest_kernelprof.trace.correlation import of_each_process, reading_of
from pytest_kernelprof.trace.reader import read_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.schema.run import Profile
    from pytest_kernelprof.trace.columns import Trace

_RANK = re.compile(r"rank[-_ ]?(\d{1,6})", re.IGNORECASE)
_ENDINGS = (".json", ".json.gz")
_MOST_NAMED = 10


def ranks_in(paths: Sequence[str], largest: int) -> tuple[list[Rank], dict[str, str]]:
    """The ranks of files and folders in their order, with what each waited for the others; and of
    the files of folders that are no traces, why. A folder with several traces has one of each rank.

    Args:
        largest: how many bytes a file may hold.

    Raises:
        TraceError: a file that was named is no trace; a folder has none, or traces that are not
            one of each rank; or nothing is a trace.
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
        if len(numbers) < len(there) > 1:  # as the traces of many tests
            raise TraceError(
                f"{folder}: {len(there)} traces with {len(numbers)} rank numbers, not one of each "
                "rank. Name files: kernelprof show FILE, or kernelprof diff OLD NEW. The first "
                f"files: {', '.join(list(there)[:_MOST_NAMED])}"
            )
    return _with_waiting(_in_order(ranks)), unread


def ranks_of_file(processes: Sequence[Trace], file: str, name: str = "") -> list[Rank]:
    """The ranks of the processes of one file. Of several it is not said which is which: they are
    named by their order.

    Args:
        name: what the file is called.
    """
    if len(processes) == 1:
        number = int(name) if name.isdecimal() else None
        profile = with_fields(_profile(processes[0]), rank=number)
        return [Rank(name, file, profile)]
    return [
        Rank(f"{name}.{at}" if name else str(at), file, _profile(one))
        for at, one in enumerate(processes)
    ]


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
    """What a file's rank is called: by the number that the profiler wrote, else by that in the
    file's name, else by that name."""
    if trace.rank is not None:
        return str(trace.rank)
    numbered = _RANK.search(file.name)
    return str(int(numbered[1])) if numbered else file.name.partition(".")[0]


def _in_order(ranks: Sequence[Rank]) -> list[Rank]:
    """By number; those of one name by their files' names instead."""
    if len({one.name for one in ranks}) < len(ranks):
        ranks = [
            Rank(f"{one.name} ({one.file})", one.file, with_fields(one.profile, rank=None))
            for one in ranks
        ]
    return sorted(ranks, key=lambda one: natural(one.name))


def _with_waiting(ranks: Sequence[Rank]) -> list[Rank]:
    """The same with what each waited for the others, where each has a number."""
    if any(one.profile.rank is None for one in ranks):
        return list(ranks)
    found = {one.rank: one for one in with_waiting([one.profile for one in ranks])}
    return [replace(one, profile=found[one.profile.rank]) for one in ranks]
