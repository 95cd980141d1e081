"""Run the small projects under ``projects/``, which are really measured on the CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import page
from outputs import environment, junit_text, parted
from ruamel.yaml import YAML

PROJECTS = Path(__file__).parent / "projects"

_PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
_USUAL = (
    *("-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:xdist", "-p", "no:randomly"),
    *("-p", "no:rerunfailures", "-p", "no:asyncio", "-p", "no:timeout", "-p", "no:warnings"),
    "--kernelprof-device=cpu",
)
_ASKED = (
    *("-q", "--kernelprof-report", "--kernelprof-markdown=run.md", "--kernelprof-html=run.html"),
    *("--kernelprof-json=run.json", "--junitxml=junit.xml", "--kernelprof-github"),
)
_SCRUBBED = (
    (re.compile(r"0x[0-9a-f]{8,}"), "0x0"),
    (re.compile(r", triton [\w.+]+"), ""),
    (re.compile(r"torch [\d][\w.+]*"), "torch 0"),
    (re.compile(r"CPU \([^)]*\)"), "CPU"),
    (re.compile(r"^( *[+>-]? *\d+ +)[\d.]+(?= +aten::)", re.M), r"\g<1>0.0"),
    (re.compile(r" ±[\d.]+%"), ""),
    (re.compile(r"\b\d+(\.\d+)?(us|ms|s)\b"), "0us"),
    (re.compile(r"\b\d+\.\d+\b"), "0.0"),
    # pytest cuts its short summary at the width: how much stays depends on the number's digits.
    (re.compile(r"\b\d+x\b.*\.\.\.$", re.M), "0x..."),
    (re.compile(r"\b\d+x slo"), "0x slo"),
    (re.compile(r"\b\d+ pairs\b( in blocks of \d+)?"), "0 pairs"),
    (re.compile(r"(run\.(?:html|md)): \S+ [KM]?B"), r"\1: 0 kB"),
    (re.compile(r"HEAD \([0-9a-f]{7}\)"), "HEAD (abc1234)"),
    (re.compile(r" {2,}"), "  "),
)


def names() -> list[str]:
    """All projects, but those that need what is not installed."""
    found = sorted(path.parent.name for path in PROJECTS.glob("*/project.yaml"))
    return [name for name in found if find_spec(described(name).get("needs", "pytest"))]


@cache
def described(name: str) -> Mapping[str, Any]:
    """What a project says of itself: its title, what comes before, its options and facts."""
    path = PROJECTS / name / "project.yaml"
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8")))


def run(name: str, folder: Path, python: str = sys.executable) -> dict[str, str]:
    """Run a project in a folder that is empty: each format by the name of its file."""
    told = described(name)
    project = folder.resolve() / "project"
    leave = shutil.ignore_patterns("before", "*.yaml", "*.txt")
    shutil.copytree(PROJECTS / name, project, ignore=leave)
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    if "before" in told:
        _prepare(told["before"], PROJECTS / name, project, python)
    done = _pytest(project, python, [*_ASKED, *told.get("options", ())])
    parts = parted(done.stdout)
    status = f"\nexit status {done.returncode}\n"
    return {
        "output.txt": f"{done.stdout}{status}",
        "terminal.txt": f"{parts['terminal']}{status}",
        "failures.txt": parts["failures"],
        "annotations.txt": parts["annotations"],
        "summary.md": (project / "summary.md").read_text(encoding="utf-8"),
        "page.txt": page.text_of((project / "run.html").read_text(encoding="utf-8")),
        "junit.txt": junit_text(project / "junit.xml"),
        "run.json": (project / "run.json").read_text(encoding="utf-8"),
    }


def keep(name: str) -> None:
    """Run a project, and keep what its terminal showed."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        texts = run(name, Path(folder))
    kept(name).write_text(scrubbed(texts["output.txt"], Path(folder)), encoding="utf-8")
    print(f"{name}: {kept(name)}")


def kept(name: str) -> Path:
    """Where it lies."""
    return PROJECTS / name / "kept.txt"


def scrubbed(text: str, folder: Path) -> str:
    """What a terminal showed without times, versions, and places of this machine.

    Args:
        folder: the one that the project ran in.
    """
    text = text.replace(str(folder.resolve() / "project"), "/project")
    for pattern, words in _SCRUBBED:
        text = pattern.sub(words, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _prepare(before: str, source: Path, project: Path, python: str) -> None:
    """Have the code of ``before/`` leave its snapshots, or its commit; then today's comes back."""
    shutil.copytree(source / "before", project, dirs_exist_ok=True)
    if before == "update":
        _pytest(project, python, ["--kernelprof-update"]).check_returncode()
    else:
        for words in ("init -q", "add -A", "commit -q -m before"):
            command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *words.split()]
            subprocess.run(command, cwd=project, env=_environment(project), check=True)
    for path in source.glob("*.py"):
        shutil.copy(path, project)


def _pytest(project: Path, python: str, options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", _PYTEST, *_USUAL, *options],
        cwd=project,
        env=_environment(project),
        capture_output=True,
        text=True,
        timeout=120,
    )


def _environment(project: Path) -> dict[str, str]:
    return environment(project, columns=100) | {"PYTHONDONTWRITEBYTECODE": "1"}
