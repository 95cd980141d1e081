"""A file of kernel snapshots as text that a reviewer reads: sorted, one fact a line."""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_kernelprof.baseline.snapshots import MOST_KERNELS, parse_line
from pytest_kernelprof.schema.codec import from_builtins
from pytest_kernelprof.schema.json_text import BadTextError, Path, parse
from pytest_kernelprof.schema.snapshot import COUNTS, FORMAT, VERSION, KeptProfile, KeptTest

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST = 2**62
_UNKNOWN = re.compile("unknown field `(.*?)`")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A test in the file; what it was made with only where that is not what most were."""

    profiles: tuple[Any, ...]
    made_with: dict[str, str] | None = None


class _Profile(KeptProfile, frozen=True, forbid_unknown_fields=True):
    """A profile in the file, of which no field is unknown: a misspelt one would allow nothing."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The file, as far as all of its tests share it."""

    schema: int
    format: str
    made_with: dict[str, str]
    tests: dict[str, Any]


def to_text(tests: Mapping[str, KeptTest]) -> bytes:
    """The file of these tests: equal tests are equal bytes."""
    made = Counter(_canonical(test.made_with) for test in tests.values())
    usual = min(made, key=lambda one: (-made[one], one), default="{}")
    entries = {}
    for key, test in tests.items():
        profiles: list[Any] = [msgspec.to_builtins(profile) for profile in test.profiles]
        own = {} if _canonical(test.made_with) == usual else {"made_with": test.made_with}
        entries[key] = {"profiles": profiles, **own}
    whole = {
        "format": FORMAT,
        "schema": VERSION,
        "made_with": json.loads(usual),
        "tests": entries,
    }
    return (json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def from_text(data: bytes) -> dict[str, KeptTest]:
    """The tests of a file.

    Raises:
        BadTextError: it is none, or of another version; with the line.
    """
    plain, lines = parse(data)
    if isinstance(plain, dict) and plain.get("format") != FORMAT:
        raise BadTextError(
            lines.get(("format",), 1), f'no file of snapshots ("format": "{FORMAT}")'
        )
    version = plain.get("schema") if isinstance(plain, dict) else VERSION
    if type(version) is not int or version != VERSION:
        newer = type(version) is int and version > VERSION
        raise BadTextError(
            lines.get(("schema",), 1),
            "written by a newer pytest-kernelprof than this one: upgrade it"
            if newer
            else f"another schema than {VERSION}",
        )
    file = _record(plain, _File, (), lines)
    return {key: _test(one, file.made_with, key, lines) for key, one in file.tests.items()}


def _test(plain: object, usual: dict[str, str], key: str, lines: Mapping[Path, int]) -> KeptTest:
    path: Path = ("tests", key)
    entry = _record(plain, _Entry, path, lines)
    profiles = tuple(
        _profile(one, (*path, "profiles", i), lines) for i, one in enumerate(entry.profiles)
    )
    return KeptTest(profiles, usual if entry.made_with is None else entry.made_with)


def _profile(plain: object, path: Path, lines: Mapping[Path, int]) -> KeptProfile:
    counts = plain.get("counts") if isinstance(plain, dict) else None
    for name, count in (counts if isinstance(counts, dict) else {}).items():
        why = _wrong_with(name, count)
        where: Path = (*path, "counts", name)
        if why:
            raise BadTextError(lines[where], why)
    found = _record(plain, _Profile, path, lines)
    in_all = 0
    for i, line in enumerate(found.kernels):
        times, where = parse_line(line)[1], (*path, "kernels", i)
        in_all += times
        if times < 1 or in_all > MOST_KERNELS:
            why = f"more than {MOST_KERNELS:,} kernels" if times else "no such number of kernels"
            raise BadTextError(lines[where], f"{line[-40:]!r}: {why}")
    return KeptProfile(**{name: getattr(found, name) for name in KeptProfile.__struct_fields__})


def _wrong_with(name: str, count: object) -> str:
    if name not in COUNTS:
        return f"{name!r} is none of {', '.join(COUNTS)}"
    if count is None or (type(count) is int and 0 <= count < _LARGEST):
        return ""
    return f"{name}: expected a whole number of zero or more, got {reprlib.repr(count)}"


def _record(plain: object, kind: Any, path: Path, lines: Mapping[Path, int]) -> Any:
    try:
        return from_builtins(plain, kind)
    except ValueError as error:
        raise BadTextError(_deepest(path, str(error), lines), str(error)) from None


def _deepest(path: Path, words: str, lines: Mapping[Path, int]) -> int:
    """The line of what msgspec's words are about, as far as they say it (``$.kernels[3]``)."""
    line = lines[path]
    said = words.rpartition("`$")[2].rstrip("`") if "`$" in words else ""
    for part in said.replace("[", ".").replace("]", "").split(".")[1:]:
        path = (*path, int(part) if part.isdigit() else part)
        line = lines.get(path, line)
    unknown = _UNKNOWN.search(words)
    return lines.get((*path, unknown[1]), line) if unknown else line


def _canonical(made: Mapping[str, str]) -> str:
    return json.dumps(dict(made), sort_keys=True)
