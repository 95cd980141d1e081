"""What the plugin costs a pytest run that does not use it, from start to end: of one test, of
thousands, and of that what its imports take."""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import in_turn, met, place, spread, table

LIMIT_MS = 15.0
MANY = 3_000
HEAVY = ("torch", "numpy", "msgspec", "filelock", "jinja2", "triton")
WITH, WITHOUT = "installed, unused", "-p no:kernelprof"
ARGUMENTS: dict[str, list[str]] = {WITH: [], WITHOUT: ["-p", "no:kernelprof"]}
INTERPRETERS = {"": [sys.executable]}
"""Before the name of a variant: how Python is started."""

# Run in a process of its own: which of the dear modules does an unused plugin bring in?
ASK = f"""
import sys, pytest
assert pytest.main(sys.argv[1:]) == 0
ours = [name for name in sys.modules if name.partition(".")[0] == "pytest_kernelprof"]
print("imported:", *(name for name in {HEAVY!r} if name in sys.modules), *ours)
"""
# And in another what ours take, where pytest is loaded.
IMPORT = """
import importlib, pytest, sys, time
start = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
print((time.process_time() - start) * 1e3)
"""


def pytest_arguments(project: Path, variant: str) -> list[str]:
    which = WITHOUT if variant.endswith(WITHOUT) else WITH
    return ["-q", "-p", "no:cacheprovider", *ARGUMENTS[which], str(project)]


def interpreter(variant: str) -> list[str]:
    return INTERPRETERS[variant.removesuffix(WITHOUT).removesuffix(WITH)]


def environment(python: str) -> dict[str, str]:
    # Options that the user keeps for their own runs are none of ours. Without bytecode, which an
    # installation writes, each start would compile the plugin. A wheel is not beside a checkout.
    ours = {"PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"}
    ours |= set() if python == sys.executable else {"PYTHONPATH"}
    return {key: value for key, value in os.environ.items() if key not in ours}


def run(command: list[str], project: Path) -> str:
    env = environment(command[0])
    done = subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"pytest failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def timed_run(project: Path, variant: str) -> tuple[float, float]:
    """Milliseconds of one run: by the clock, and of the processor."""
    command = [*interpreter(variant), "-m", "pytest", *pytest_arguments(project, variant)]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, project)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took * 1e3, processor * 1e3


def instructions(project: Path, variant: str) -> float:
    """Millions of instructions of one run, by valgrind: alike however busy the machine is."""
    python, *options = interpreter(variant)
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [python, *options, "-m", "pytest", *pytest_arguments(project, variant)]
    env = {**environment(python), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=True)
    return int(re.findall(r"I +refs: +([\d,]+)", done.stderr)[-1].replace(",", "")) / 1e6


def runs_of(project: Path, rounds: int, wheres: list[str]) -> dict[str, list[tuple[float, float]]]:
    """So many runs of each variant, in turn."""
    variants = [where + which for where in wheres for which in ARGUMENTS]
    took: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for variant in in_turn(variants, rounds):
        took[variant].append(timed_run(project, variant))
    return took


def more(took: dict[str, list[tuple[float, float]]], which: int, where: str = "") -> list[float]:
    """How much longer each run with the plugin took than its neighbour without."""
    both = zip(took[where + WITH], took[where + WITHOUT], strict=True)
    return [a[which] - b[which] for a, b in both]


def project_of(folder: Path, tests: int) -> Path:
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    written = "".join(f"def test_{i}():\n    assert 1 + 1 == 2\n\n\n" for i in range(tests))
    (folder / "test_them.py").write_text(written)
    return folder


def imported(project: Path, variant: str) -> list[str]:
    command = [*interpreter(variant), "-c", ASK, *pytest_arguments(project, variant)]
    return run(command, project).splitlines()[-1].split()[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="runs of each variant")
    parser.add_argument("--quick", action="store_true", help="15 rounds")
    parser.add_argument("--wheel", metavar="PYTHON", help="of an environment that has the wheel")
    parser.add_argument("--instructions", action="store_true", help="count them, with valgrind")
    options = parser.parse_args()
    rounds = 15 if options.quick else options.rounds
    if options.wheel:
        INTERPRETERS["wheel: "] = [options.wheel]
        INTERPRETERS["wheel, python -B: "] = [options.wheel, "-B"]  # as in many containers

    with tempfile.TemporaryDirectory() as folder:
        one, many = project_of(Path(folder, "one"), 1), project_of(Path(folder, "many"), MANY)
        # Also brings the files into the page cache.
        variants = [where + which for where in INTERPRETERS for which in ARGUMENTS]
        dear = {variant: [m for m in imported(one, variant) if m in HEAVY] for variant in variants}
        modules = [name for name in imported(one, WITH) if name not in HEAVY]
        imports = [float(run([sys.executable, "-c", IMPORT, *modules], one)) for _ in range(rounds)]
        took = runs_of(one, rounds, list(INTERPRETERS))
        of_many = runs_of(many, max(3, rounds // 4), [""])

        counts = {v: instructions(one, v) for v in variants if options.instructions}

    print(f"Start-up, plugin unused: {rounds} runs of each, in turn")
    print(place("pytest", "pytest-kernelprof"))
    print()
    rows = []
    for name in variants:
        told = [spread([run[i] for run in took[name]], 1) for i in (0, 1)]
        told += [f"{counts[name]:.0f}" if counts else ""]
        rows.append([name, *told, " ".join(dear[name])])
    for where in INTERPRETERS:
        told = [spread(more(took, i, where), 1) for i in (0, 1)]
        told += [f"{counts[where + WITH] - counts[where + WITHOUT]:+.0f}" if counts else ""]
        rows.append([f"{where}difference of neighbours", *told, ""])
    heads = ["ms, median [quartiles]", "CPU ms", "M instructions", "dear imports"]
    print(table(["pytest on one test", *heads], rows))
    print()
    a_test = [(ms - statistics.median(more(took, 1))) / (MANY - 1) for ms in more(of_many, 1)]
    print(f"imports ({len(modules)} modules): {spread(imports, 1)} ms of CPU time")
    print(f"a test: {spread(a_test, 3)} ms of CPU time more, in a suite of {MANY:,}")
    print()
    installed = "wheel: " if options.wheel else ""  # as users have it, if there is one
    median = statistics.median(more(took, 0, installed))
    verdict = met(median <= LIMIT_MS)
    print(f"{installed}{median:+.1f} ms; target: at most {LIMIT_MS:.0f} ms more: {verdict}")
    print(f"torch not imported: {met('torch' not in dear[WITH])}")


if __name__ == "__main__":
    main()
