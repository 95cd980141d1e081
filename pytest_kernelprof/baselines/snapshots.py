"""Kernel snapshots: what is kept of a profile, how a profile compares with it, and their files.

A file is text that a reviewer reads: sorted, one fact a line. It is whole at any moment, and two
runs that change it at once lose nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import reprlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any, NoReturn

import msgspec
from msgspec.structs import asdict, replace

from pytest_kernelprof.comparison.judge import differences, forbidding, made_with
from pytest_kernelprof.comparison.kernel_diff import diff_sides
from pytest_kernelprof.comparison.kernel_pairing import STEP
from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.kernel_names.short_names import comparable_name, kept_name
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import (
    KEPT_COUNTS,
    SNAPSHOT_FORMAT,
    Change,
    Edited,
    KeptProfile,
    KeptTest,
    KernelSide,
    MetricDelta,
    ProfileComparison,
    Resources,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.metrics import METRICS, OF_WORST_KERNEL
from pytest_kernelprof.records.profile import Kernel, Profile
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real, unix_ns
from pytest_kernelprof.units import printable

Tests = dict[str, KeptTest]


MOST_KERNELS = 1_000_000
"""Kernels that one entry may stand for."""

KeptKey = tuple[str, int, int | None]

# Annotations, which are numbered by what ran before, and no operators.
_NO_OPERATORS = (STEP, "## Call CompiledFxGraph ", "Torch-Compiled Region", "autograd::engine::")
_DEVICES = {name: METRICS[name].devices for name in ("kernels", *KEPT_COUNTS)}
_TIMES = re.compile(r" x(\d{1,9})\Z")


def kept_of(profile: Profile) -> KeptProfile:
    """What is kept of a profile."""
    sides = _sides(profile.kernels)
    lines, ordered = [side.line for side in sides], not profile.variants
    kind = profile.environment.kind
    counts = {name: _count(profile, name) for name in KEPT_COUNTS if kind in _DEVICES[name]}
    return KeptProfile(
        kernels=tuple(_counted(lines if ordered else sorted(lines))),
        label=codec.text(profile.label),
        ordered=ordered,
        counts={name: count for name, count in counts.items() if count != 0},
        resources=_resources(sides, profile.kernels),
    )


def kept_of_ranks(profile: Profile) -> tuple[KeptProfile, ...]:
    """What is kept of a profile and of its other ranks: of those that launch something else than
    the first."""
    first = kept_of(profile.ranks[0])
    others = ((one.rank, kept_of(one)) for one in profile.ranks[1:])
    return (first, *(replace(kept, rank=rank) for rank, kept in others if kept != first))


def why_not_kept(profile: Profile) -> str:
    """Why a profile makes no snapshot: "incomplete", "cold" or "unstable", or that there is none;
    empty where it does. One of its ranks suffices."""
    return next(filter(None, map(_why_not_kept, profile.ranks)), "")


def _why_not_kept(profile: Profile) -> str:
    integrity = profile.integrity
    if not integrity.complete:
        return "incomplete"
    if integrity.cold or not integrity.settled:
        return "cold"
    metrics = [profile.metrics[name] for name in _DEVICES if name in profile.metrics]
    lines = sorted(_lines(profile.kernels))
    others = (sorted(_lines(variant)) for variant in profile.variants)
    if not all(metric.stable for metric in metrics) or any(other != lines for other in others):
        return "unstable"
    if profile.more_kernels or profile.kernel_count != len(lines):
        return "its kernels are not recorded one by one"
    return ""


def compare(kept: KeptProfile, made: Mapping[str, str], profile: Profile) -> ProfileComparison:
    """How a profile compares with what is kept: more of a count is worse; fewer, or other kernels,
    have changed, and so have those that need more or fewer resources on the same device and
    software.

    Args:
        made: what the entry was made with.
    """
    before, after = sides_of(kept), _sides(profile.kernels)
    others = differences(made, profile.environment)
    if kept.resources and not forbidding(others, METRICS["registers"]):
        now_needed = _resources(after, profile.kernels)
        before, after = _with(kept.resources, before), _with(now_needed, after)
    kernels = diff_sides(before, after, ordered=kept.ordered and not profile.variants)
    kernels = replace(kernels, what="operators" if profile.on_cpu else "kernels")
    judged = [name for name, kinds in _DEVICES.items() if profile.environment.kind in kinds]
    had = _counts_of(kept)
    now = {name: _count(profile, name) for name in judged}
    metrics = tuple(_deltas({name: had[name] for name in judged}, now))
    change: Change = "changed" if kernels.changes or metrics else "same"
    return ProfileComparison(
        source="snapshot",
        label=profile.label,
        rank=profile.rank,
        change="worse" if any(one.change == "worse" for one in metrics) else change,
        kernels=kernels,
        metrics=metrics,
        differences=tuple(one.words for one in others),
        lost=tuple(name for name in judged if had[name] is not None and now[name] is None),
        incomplete=profile.integrity.problems,
    )


def loosened(old: KeptTest, new: KeptTest) -> dict[str, tuple[MetricDelta, ...]]:
    """By the profile's label, of which counts a new entry allows more than an old one."""
    known = dict(numbered(old.profiles))
    found = {}
    for key, profile in numbered(new.profiles):
        if key in known:
            deltas = _deltas(_counts_of(known[key]), _counts_of(profile))
            if more := tuple(one for one in deltas if one.change == "worse"):
                found[profile.label] = more
    return found


def numbered(profiles: Iterable[KeptProfile]) -> Iterator[tuple[KeptKey, KeptProfile]]:
    """Each with what tells it from the others of its test: its label, the how manieth of that
    label it is, from 0, and the rank, where it is of one that launches something else."""
    seen: Counter[tuple[str, int | None]] = Counter()
    for profile in profiles:
        of_one = (profile.label, profile.rank)
        yield (profile.label, seen[of_one], profile.rank), profile
        seen[of_one] += 1


def parse_line(line: str) -> tuple[str, int]:
    """A line of ``KeptProfile.kernels`` without its ``x12``, and that number."""
    times = _TIMES.search(line)
    return (line[: times.start()], int(times[1])) if times else (line, 1)


def sides_of(kept: KeptProfile) -> list[KernelSide]:
    """The kernels of an entry, one by one."""
    lines = map(parse_line, kept.kernels)
    return [side for line, times in lines for side in repeat(_side_of(line), times)]


def _sides(kernels: Sequence[Kernel]) -> list[KernelSide]:
    """The kernels of a profile as a snapshot would have them, each with its source line."""
    found = []
    for kernel in kernels:
        side = _side(kernel.name, kernel.operators[0] if kernel.operators else "")
        found.append(replace(side, source=printable(kernel.source)) if kernel.source else side)
    return found


def _lines(kernels: Sequence[Kernel]) -> list[str]:
    return [side.line for side in _sides(kernels)]


def _resources(sides: Sequence[KernelSide], kernels: Sequence[Kernel]) -> dict[str, Resources]:
    """By line what kernels need, at most; None for what is not known of all of them, and nothing
    where that is so of registers."""
    found: defaultdict[str, set[tuple[int | None, ...]]] = defaultdict(set)
    for side, kernel in zip(sides, kernels, strict=True):
        found[side.line].add(tuple(map(kernel.need, OF_WORST_KERNEL)))
    most = {line: [*map(_most, zip(*needs, strict=True))] for line, needs in found.items()}
    return {
        line: Resources(registers, *others)
        for line, (registers, *others) in most.items()
        if registers is not None
    }


def _most(needs: Sequence[int | None]) -> int | None:
    known = [one for one in needs if one is not None]
    return max(known) if len(known) == len(needs) else None


def _with(resources: Mapping[str, Resources], sides: Iterable[KernelSide]) -> list[KernelSide]:
    """The kernels with what those of their line need."""
    known = {line: asdict(one) for line, one in resources.items()}
    return [replace(side, **known.get(side.line, {})) for side in sides]


@lru_cache(maxsize=256)
def _side(name: str, operator: str) -> KernelSide:
    told = printable(codec.text(kept_name(name)))
    is_own = comparable_name(operator) == comparable_name(name)
    if not operator or operator.startswith(_NO_OPERATORS) or is_own:
        return KernelSide(told)
    return _side_of(f"{told} | {printable(codec.text(operator))}")


def _side_of(line: str) -> KernelSide:
    """A kernel as a snapshot's line has it: the last `` | `` parts its name and its operator."""
    name, _, operator = line.rpartition(" | ")
    return KernelSide(name or line, (operator,) if name else ())


def _counted(lines: Iterable[str]) -> Iterator[str]:
    """Equal lines in a row as one line, with their number."""
    for line, run in groupby(lines):
        times = sum(1 for _ in run)
        yield f"{line} x{times}" if times > 1 or _TIMES.search(line) else line


def _count(profile: Profile, name: str) -> int | None:
    metric = profile.metrics.get(name)
    return None if metric is None or metric.value is None else int(metric.value)


def _counts_of(kept: KeptProfile) -> dict[str, int | None]:
    kernels = sum(times for _, times in map(parse_line, kept.kernels))
    return {"kernels": kernels, **{name: kept.counts.get(name, 0) for name in KEPT_COUNTS}}


def _deltas(old: Mapping[str, int | None], new: Mapping[str, int | None]) -> Iterator[MetricDelta]:
    """Of what both sides have and is another."""
    for name, before in old.items():
        after = new.get(name)
        if before is not None and after is not None and before != after:
            yield MetricDelta(
                name=name,
                baselines=(before,),
                current=after,
                change="worse" if after > before else "better",
                judged=True,
            )


FOLDER = "__kernelprof__"
_SUFFIX = ".json"
_LEFT_OVER = re.compile(r"\.kernelprof-[0-9a-f]{12}").fullmatch
_LONGEST_WAIT = 60.0
_LARGEST = 2**62
_UNKNOWN = re.compile("unknown field `(.*?)`")
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The file. ``made_with`` is what most tests were made with, who then have none themselves."""

    schema: int
    format: str
    made_with: dict[str, str]
    tests: dict[str, Any]


class BadTextError(ValueError):
    """Why a text is not what it should be, and the line, from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def device_folder(kind: str, name: str) -> str:
    """The folder of a device: ``NVIDIA-H200``, or ``cpu``."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    return "cpu" if kind == "cpu" else plain or "gpu"


def path_of(test_file: str, device: str) -> str:
    """The file of the snapshots of a test file."""
    folder, file = os.path.split(test_file)
    return os.path.join(folder, FOLDER, device, file.removesuffix(".py") + _SUFFIX)


def file_checked(name: str, folder: str) -> str:
    """The test file that a file of snapshots of this name is of."""
    stem = name.removesuffix(_SUFFIX)
    return stem if os.path.exists(os.path.join(folder, stem)) and "." in stem else f"{stem}.py"


def devices_of(folder: str) -> dict[str, frozenset[str]]:
    """The devices that have snapshots of tests in a folder, each with the names of its files; one
    look, where there are none."""
    inside = os.path.join(folder, FOLDER)
    try:
        devices = Real.listdir(inside)
    except OSError:
        return {}
    found = {}
    for device in sorted(devices):
        with contextlib.suppress(OSError):
            names = Real.listdir(os.path.join(inside, device))
            found[device] = frozenset(name for name in names if name.endswith(_SUFFIX))
    return found


def read(path: str) -> Tests:
    """The tests of a file; none where there is no file.

    Raises:
        SnapshotError: it cannot be read; it names the file, the line and what to do.
    """
    if why := codec.why_no_target(path):  # a FIFO would hold the run up for ever
        raise _cannot(path, "read", why)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _cannot(path, "read", error.strerror or str(error)) from None
    try:
        return from_text(data)
    except BadTextError as error:
        raise SnapshotError(
            printable(
                f"{path}:{error.line}: {error}; fix it, restore the file from version control, "
                "or delete it and write it again with pytest --kernelprof-update"
            )
        ) from None


def update(
    path: str, entries: Tests, removed: Collection[str] = (), *, only_new: bool = False
) -> Edited:
    """Bring a file up to date. Without tests it goes.

    Another run that changes it meanwhile waits. Whoever reads it finds the old one or the new one,
    also if this process is killed.

    Args:
        entries: of tests that ran. Entries of other tests stay.
        removed: the keys of tests that there are no more.
        only_new: whether entries that are there stay as they are.

    Raises:
        SnapshotError: the file that is there cannot be read, and stays as it is; or it cannot be
            written; or another run holds it for a minute.
    """
    from filelock import FileLock, Timeout

    where = os.path.realpath(path)
    owner = getattr(os, "getuid", int)()
    name = f"kernelprof-snapshots-{owner}-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"
    # Beside the file it would be in the user's tree.
    lock = FileLock(os.path.join(TEMPORARY_FOLDER or os.curdir, f"{name}.lock"))
    try:
        with lock.acquire(timeout=_LONGEST_WAIT):
            old = read(path)
            kept = {key: test for key, test in old.items() if key not in removed}
            new = {**entries, **kept} if only_new else {**kept, **entries}
            _write(path, new, same=new == old)
    except Timeout:
        why = f"another run has held it for {_LONGEST_WAIT:.0f} s"
        raise _cannot(path, "written", why) from None
    except OSError as error:
        raise _cannot(path, "written", error.strerror or str(error)) from None
    looser = tuple(
        (key, label, counts)
        for key in sorted({*entries} & {*old})
        for label, counts in loosened(old[key], new[key]).items()
    )
    written = sum(new[key] != old.get(key) for key in entries)
    return Edited(written, len(entries) - written, len(set(old) - set(new)), looser)


def gather(run: Run) -> tuple[dict[tuple[str, str], Tests], list[tuple[str, str]]]:
    """The entries of a run's tests, as an update in that run would have made them.

    Returns:
        The entries by test file (from pytest's root folder) and device, then by key; and of which
        tests nothing is kept, and why.
    """
    by_test: defaultdict[str, list[Test]] = defaultdict(list)
    for test in run.tests:
        if test.outcome != "rerun":  # a try that was repeated
            by_test[test.id].append(test)
    entries: defaultdict[tuple[str, str], Tests] = defaultdict(dict)
    refused = []
    for name, tests in by_test.items():
        profiles = [profile for test in tests for profile in test.profiles]
        bad = next(filter(None, map(why_failed, tests)), "")
        if not profiles or bad == "skipped":
            continue
        devices = {device_folder(one.environment.kind, one.environment.device) for one in profiles}
        why = next(filter(None, map(why_not_kept, profiles)), "") or bad
        if len(devices) > 1:
            why = why or f"it ran on {' and '.join(sorted(devices))}"
        if why:
            refused.append((name, why))
            continue
        file, _, key = name.partition("::")
        kept = tuple(one for profile in profiles for one in kept_of_ranks(profile))
        entries[file, devices.pop()][key] = KeptTest(kept, made_with(profiles[-1].environment))
    return entries, refused


def why_failed(test: Test) -> str:
    """Why nothing is kept of a test that ended so; empty if it passed, or its snapshot alone
    refused it."""
    if test.outcome not in ("passed", "failed"):
        return test.outcome
    over = [v for one in test.profiles for v in one.verdicts if v.outcome == "failed"]
    if limits := dict.fromkeys(one.limit for one in over if not one.of_snapshot):
        return f"limit exceeded: {', '.join(limits)}"
    taken = test.snapshot
    if test.outcome == "passed" or (taken and taken.accepts):
        return ""
    return taken.refused if taken and taken.refused else "the test failed for another reason"


def to_text(tests: Mapping[str, KeptTest]) -> bytes:
    """The file of these tests: equal tests are equal bytes."""
    made = Counter(json.dumps(test.made_with, sort_keys=True) for test in tests.values())
    usual = json.loads(min(made, key=lambda one: (-made[one], one), default="{}"))
    entries = {
        key: replace(test, made_with={}) if test.made_with == usual else test
        for key, test in tests.items()
    }
    whole = msgspec.to_builtins(_File(codec.VERSION, SNAPSHOT_FORMAT, usual, entries))
    return (json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def from_text(data: bytes) -> Tests:
    """The tests of a file.

    Raises:
        BadTextError: it is none, or of another version; with the line.
    """
    text, plain = _parse(data)
    if isinstance(plain, dict) and plain.get("format") != SNAPSHOT_FORMAT:
        why = f'not a snapshot file ("format": "{SNAPSHOT_FORMAT}")'
        raise BadTextError(_line_of(text, "format"), why)
    file = _record(plain, _File, text)
    tests = {}
    for key, one in file.tests.items():
        _refuse_wrong_counts(one, key, text)
        tests[key] = test = _record(one, KeptTest, text, "tests", key)
        _refuse_wrong_kernels(test, key, text)
    return {
        key: test if test.made_with else replace(test, made_with=file.made_with)
        for key, test in tests.items()
    }


def _refuse_wrong_counts(test: object, key: str, text: str) -> None:
    for name, count in _counts_in(test):
        line = _line_of(text, "tests", key, name, value=count)
        if name not in KEPT_COUNTS:
            raise BadTextError(line, f"{name!r} is not one of {', '.join(KEPT_COUNTS)}")
        if count is not None and (type(count) is not int or not 0 <= count < _LARGEST):
            got = reprlib.repr(count)
            raise BadTextError(line, f"{name}: expected a whole number of zero or more, got {got}")


def _counts_in(test: object) -> Iterator[tuple[Any, object]]:
    """The counts of an entry, as they were read."""
    match test:
        case {"profiles": [*profiles]}:
            for profile in profiles:
                match profile:
                    case {"counts": {**counts}}:
                        yield from counts.items()


def _refuse_wrong_kernels(test: KeptTest, key: str, text: str) -> None:
    for profile in test.profiles:
        in_all = 0
        for line in profile.kernels:
            times = parse_line(line)[1]
            in_all += times
            if times < 1 or in_all > MOST_KERNELS:
                many = f"more than {MOST_KERNELS:,} kernels"
                why = f"{line[-40:]!r}: {many if times else 'not a valid number of kernels'}"
                raise BadTextError(_line_of(text, "tests", key, line), why)


def _cannot(path: str, be_done: str, why: str) -> SnapshotError:
    return SnapshotError(printable(f"{path}: cannot be {be_done} ({why})"))


def _write(path: str, tests: Tests, *, same: bool) -> None:
    folder = os.path.dirname(path)
    if same and (tests or not os.path.exists(path)):
        return
    if tests:
        os.makedirs(folder, exist_ok=True)
        _sweep(folder)
        codec.write_atomically(path, to_text(tests))
        return
    with contextlib.suppress(FileNotFoundError):
        Real.unlink(path)
    for empty in (folder, os.path.dirname(folder)):
        with contextlib.suppress(OSError):  # there are others
            Real.rmdir(empty)


def _sweep(folder: str) -> None:
    """Remove what a killed run has left there before it could be moved to its place.

    One that another run writes for another file of this folder just now is young.
    """
    for path in (os.path.join(folder, one) for one in Real.listdir(folder) if _LEFT_OVER(one)):
        with contextlib.suppress(OSError):
            if unix_ns() / 1e9 - Real.lstat(path).st_mtime > _LONGEST_WAIT:
                Real.unlink(path)


def _record(plain: object, kind: Any, text: str, *keys: str) -> Any:
    """A record of a kind; ``keys`` lead to it in the text."""
    try:
        return codec.from_builtins(plain, kind)
    except ValueError as error:
        # With the path of what it is about, for example `$.profiles[0].label`, or ``schema: ``.
        words = str(error)
        names = re.findall(r"(?:\.|^)(\w+)", words.rpartition("`$")[2])
        unknown = _UNKNOWN.search(words)
        names += [unknown[1]] if unknown else []
        raise BadTextError(_line_of(text, *keys, *names), words) from None


def _line_of(text: str, *keys: str, value: object = None) -> int:
    """The line of the last of some keys, each looked for behind the one before it.

    Args:
        value: what the last key has, where several keys of this name may follow.
    """
    at = 0
    for key in keys:
        at = max(at, text.find(_quoted(key), at))
    if value is not None:
        at = max(at, text.find(f"{_quoted(keys[-1])}: {_quoted(value)}", at))
    return text.count("\n", 0, at) + 1


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parse(data: bytes) -> tuple[str, Any]:
    """The text and its value.

    Raises:
        BadTextError: no UTF-8, no JSON, a key twice, a number that is none, or left by a merge.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadTextError(data.count(b"\n", 0, error.start) + 1, "no UTF-8") from None

    def refuse(word: str, why: str) -> NoReturn:
        raise BadTextError(text.count("\n", 0, text.rfind(word)) + 1, why)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                refuse(_quoted(key), f"the key {_quoted(key)} is there twice")
        return dict(pairs)

    def no_number(word: str) -> NoReturn:
        refuse(word, f"{word} is not a number")

    try:
        return text, json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except BadTextError:
        raise
    except json.JSONDecodeError as error:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            raise BadTextError(line, f"a merge conflict ({conflict[1]})") from None
        raise BadTextError(error.lineno, f"not JSON: {error.msg}") from None
    except (RecursionError, ValueError):  # a number of too many digits
        raise BadTextError(
            1, "JSON that cannot be read: nested too deeply, or a number is too large"
        ) from None
