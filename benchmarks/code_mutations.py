"""How many small faults in the package the tests notice: the rate that a change of tests must keep.

It changes one expression of a function at a time (a comparison, a condition, a number, a sum, a
returned value, a call whose result nobody uses) in a copy of the package, and runs the tests that
run this line, quickest first, until one fails. The seed decides which places; each room has as many
as its share of the lines.

    python benchmarks/code_mutations.py                  # 200 mutations; one to two hours
    python benchmarks/code_mutations.py --number 20      # a first look
    python benchmarks/code_mutations.py --revision main~5

A first run of all tests records which of them run which line. It needs coverage and pytest-xdist.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData
from harness import place, table

ROOT = Path(__file__).parent.parent
PACKAGE = "pytest_kernelprof"
# What these tests do is slow or reads the code instead of running it.
LEFT_OUT = ("--ignore=tests/gpu", "--ignore=tests/browser", "--ignore=tests/docs", "-m", "not bulk")
OPTIONS = ("-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:kernelprof_recorder")
RECORDER = '''
"""Records which test runs which line, how long each takes, and which fail."""
import json, os
import coverage, pytest

recording = coverage.Coverage(
    data_file=os.environ["RECORDED"], data_suffix=True, source_pkgs=["pytest_kernelprof"],
    config_file=False, concurrency=["thread"],
)
recording.start()
taken, failed = {}, []

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    recording.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        recording.switch_context("")

def pytest_runtest_logreport(report):
    taken[report.nodeid] = taken.get(report.nodeid, 0.0) + report.duration
    if report.failed or report.outcome == "rerun":
        failed.append(report.nodeid)

def pytest_sessionfinish(session):
    recording.stop()
    recording.save()
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with open(f"{os.environ['RECORDED']}.{name}.json", "w") as file:
        json.dump([taken, failed], file)
'''


class Mutation(NamedTuple):
    """One change: the file, its first and last line, the offsets in bytes, and both texts."""

    file: str
    line: int
    end_line: int
    span: tuple[int, int]
    before: str
    after: str

    @property
    def room(self) -> str:
        return Path(self.file).parts[1].removesuffix(".py")


_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


def mutated(node: ast.AST) -> ast.expr | ast.stmt | None:
    """The node with another meaning; None where there is nothing to change."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in _COMPARED:
        other.ops[0] = _COMPARED[type(other.ops[0])]()
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        return other.operand
    elif isinstance(other, ast.BinOp) and type(other.op) in _COUNTED:
        other.op = _COUNTED[type(other.op)]()
    elif isinstance(other, ast.Constant) and type(other.value) in (int, float):
        other.value += 1
    elif isinstance(other, ast.IfExp):
        other.body, other.orelse = other.orelse, other.body
    elif isinstance(other, ast.Return) and not _is_none(other.value):
        other.value = ast.Constant(None)
    elif isinstance(other, ast.Expr) and isinstance(other.value, ast.Call):
        return ast.Pass()
    else:
        return None
    return other if isinstance(other, (ast.expr, ast.stmt)) else None


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def mutations_of(root: Path, path: Path) -> Iterator[Mutation]:
    """All changes of the functions in a file; annotations are left alone."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        nodes = [inner for part in function.body for inner in ast.walk(part)]
        # What stands in an f-string cannot be replaced by its place.
        texts = (one for one in nodes if isinstance(one, ast.JoinedStr))
        in_texts = {id(inner) for one in texts for inner in ast.walk(one)}
        for node in nodes:
            other = mutated(node) if isinstance(node, (ast.expr, ast.stmt)) else None
            if other is None or not isinstance(node, (ast.expr, ast.stmt)):
                continue
            end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
            span = starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end
            if span in seen or id(node) in in_texts:
                continue
            seen.add(span)
            text = ast.unparse(ast.fix_missing_locations(other))
            after = f"({text})" if isinstance(other, ast.expr) else text
            before = source[slice(*span)].decode()
            file = path.relative_to(root).as_posix()
            yield Mutation(file, node.lineno, end_line, span, before, after)


def chosen(root: Path, number: int, seed: int) -> list[Mutation]:
    """As many mutations of each room as it has of all places, one a line."""
    by_room: defaultdict[str, list[Mutation]] = defaultdict(list)
    for path in sorted((root / PACKAGE).rglob("*.py")):
        lines = set()
        for one in mutations_of(root, path):
            if one.line not in lines:
                lines.add(one.line)
                by_room[one.room].append(one)
    total = sum(map(len, by_room.values()))
    found: list[Mutation] = []
    for room, several in sorted(by_room.items()):
        share = max(1, round(number * len(several) / total))
        found += random.Random(f"{seed} {room}").sample(several, min(share, len(several)))
    return found


def copied(revision: str, folder: Path) -> Path:
    """A revision of the repository in a folder of its own."""
    packed = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return folder


def environment(root: Path, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COV")}
    return {**kept, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "CI": "", **more}


class Recorded(NamedTuple):
    """Which tests run a line, by file; how long each takes."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def running(self, one: Mutation, most_s: float) -> list[str]:
        """The tests that run a mutation, the quickest first, of bounded time together."""
        lines = self.tests.get(one.file, {})
        found = {test for at in range(one.line, one.end_line + 1) for test in lines.get(at, [])}
        left, told = most_s, []
        for test in sorted(found, key=lambda test: (self.seconds[test], test)):
            left -= self.seconds[test]
            if left < 0 and told:
                break
            told.append(test)
        return told


def recorded(root: Path, folder: Path, workers: int) -> Recorded:
    """One run of all tests."""
    (folder / "kernelprof_recorder.py").write_text(RECORDER)
    paths = os.pathsep.join([str(root), str(folder)])
    known = environment(root, PYTHONPATH=paths, RECORDED=str(folder / "lines"))
    run = [sys.executable, "-m", "pytest", "-p", "kernelprof_recorder", "tests", *LEFT_OUT, "-q"]
    subprocess.run([*run, "-n", str(workers)], cwd=root, env=known, stdout=subprocess.DEVNULL)
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for path in folder.glob("lines.gw*.json"):
        taken, lost = json.loads(path.read_text())
        seconds |= taken
        failed |= set(lost)
    tests: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in (one for one in folder.glob("lines.*") if one.suffix != ".json"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            name = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
            for line, names in data.contexts_by_lineno(file).items():
                good = (one for one in names if one in seconds and one not in failed)
                tests[name][line] += good
    return Recorded(tests, seconds)


def is_noticed(root: Path, one: Mutation, tests: Sequence[str], most_s: float) -> bool:
    """Whether a test fails, or hangs, by a mutation."""
    with tempfile.TemporaryDirectory() as folder:
        copied_root = Path(folder) / "mutated"
        subprocess.run(["cp", "-r", str(root), str(copied_root)], check=True)
        path = copied_root / one.file
        source = path.read_bytes()
        start, end = one.span
        path.write_bytes(source[:start] + one.after.encode() + source[end:])
        (Path(folder) / "tests.txt").write_text("\n".join(tests))
        run = [sys.executable, "-m", "pytest", "-x", *OPTIONS, f"@{folder}/tests.txt"]
        try:
            ended = subprocess.run(
                run,
                cwd=copied_root,
                env=environment(copied_root),
                capture_output=True,
                timeout=3 * most_s + 60,
            )
        except subprocess.TimeoutExpired:
            return True
        return ended.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--revision", default="HEAD", help="whose code and tests")
    parser.add_argument("--seconds", type=float, default=40.0, help="of tests for one mutation")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = copied(options.revision, Path(folder) / "code")
        known = recorded(root, Path(folder), options.workers)
        found = chosen(root, options.number, options.seed)
        tests = [known.running(one, options.seconds) for one in found]

        def judge(at: int) -> bool:
            return bool(tests[at]) and is_noticed(root, found[at], tests[at], options.seconds)

        with ThreadPoolExecutor(options.workers) as pool:
            noticed = list(pool.map(judge, range(len(found))))
    print(f"{place('pytest', 'torch')}; revision {options.revision}, seed {options.seed}\n")
    rooms, good = Counter(one.room for one in found), Counter[str]()
    good.update(one.room for one, well in zip(found, noticed, strict=True) if well)
    rows = [[room, str(n), str(good[room]), f"{good[room] / n:.0%}"] for room, n in rooms.items()]
    total, all_good = len(found), sum(noticed)
    rows.append(["all", str(total), str(all_good), f"{all_good / total:.1%}"])
    print(table(["room", "mutations", "noticed", "rate"], rows))
    print("\nnot noticed:")
    for one, well, several in zip(found, noticed, tests, strict=True):
        if not well:
            ran = f"{len(several)} tests" if several else "no test runs it"
            print(f"  {one.file}:{one.line}: {one.before!r} -> {one.after!r} ({ran})")


if __name__ == "__main__":
    main()
