"""What the plugin costs a pytest run that does not use it: start to end of a one-test project."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import in_turn, met, place, spread, table

LIMIT_MS = 20.0
HEAVY = ("torch", "numpy", "msgspec", "filelock", "jinja2", "triton")
WITH, WITHOUT = "installed, unused", "-p no:kernelprof"
ARGUMENTS: dict[str, list[str]] = {WITH: [], WITHOUT: ["-p", "no:kernelprof"]}

# Run in a process of its own: which of the dear modules does an unused plugin bring in?
ASK = f"""
import sys, pytest
assert pytest.main(sys.argv[1:]) == 0
print("imported:", *(name for name in {HEAVY!r} if name in sys.modules))
"""


def pytest_arguments(project: Path, variant: str) -> list[str]:
    return ["-q", "-p", "no:cacheprovider", *ARGUMENTS[variant], str(project)]


def environment() -> dict[str, str]:
    # Options that the user keeps for their own runs are none of ours. Without bytecode, which an
    # installation writes, each start would compile the plugin.
    ours = ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if key not in ours}


def run(command: list[str], project: Path) -> str:
    done = subprocess.run(
        command, cwd=project, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"pytest failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="runs of each variant")
    parser.add_argument("--quick", action="store_true", help="15 rounds")
    options = parser.parse_args()
    rounds = 15 if options.quick else options.rounds

    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "test_one.py").write_text("def test_one():\n    assert 1 + 1 == 2\n")
        imported = {}
        for variant in ARGUMENTS:  # also brings the files into the page cache
            said = run(
                [sys.executable, "-c", ASK, *pytest_arguments(project, variant)], project
            ).splitlines()[-1]
            imported[variant] = said.split()[1:]
        took: dict[str, list[float]] = {variant: [] for variant in ARGUMENTS}
        for variant in in_turn(list(ARGUMENTS), rounds):
            command = [sys.executable, "-m", "pytest", *pytest_arguments(project, variant)]
            start = time.perf_counter()
            run(command, project)
            took[variant].append((time.perf_counter() - start) * 1e3)

    more = [a - b for a, b in zip(took[WITH], took[WITHOUT], strict=True)]
    print(f"Start-up, plugin unused: {rounds} runs of each, in turn")
    print(place("pytest", "pytest-kernelprof"))
    print()
    rows = [[name, spread(took[name], 1), " ".join(imported[name]) or "-"] for name in ARGUMENTS]
    rows.append(["difference of neighbours", spread(more, 1), ""])
    print(table(["pytest on one test", "ms, median [quartiles]", "dear imports"], rows))
    print()
    median = statistics.median(more)
    verdict = met(median <= LIMIT_MS)
    print(f"{median:+.1f} ms; target: at most {LIMIT_MS:.0f} ms more: {verdict}")
    print(f"torch not imported: {met('torch' not in imported[WITH])}")


if __name__ == "__main__":
    main()
