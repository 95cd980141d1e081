"""The examples of README and docs run as they stand."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import runpy
from pathlib import Path

import pytest

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.gpu.inventory import why_no_gpu

ROOT = Path(__file__).parents[2]
EXAMPLE_PROJECT = ROOT / "example_project"
PAGES = [
    *(ROOT / "README.md", EXAMPLE_PROJECT / "README.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLE = re.compile(r"<!-- run: (passes|script|compiled) -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(how, code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, (how, code) in enumerate(EXAMPLE.findall(page.read_text()), 1)
]


@pytest.mark.parametrize(("how", "code"), EXAMPLES)
def test_an_example_runs_as_it_stands(
    pytester: pytest.Pytester, python: str, monkeypatch: pytest.MonkeyPatch, how: str, code: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE_PROJECT), prepend=os.pathsep)
    if how == "script":
        pytester.makepyfile(example=code)
        run = "import runpy; runpy.run_path('example.py', run_name='__main__')"
        assert pytester.run(python, "-c", run).ret == 0
        return
    if how == "compiled":
        pytest.importorskip("triton")
    pytester.makepyfile(code)
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "-p", "benchmark", "--strict-markers", "-rs")
    )
    outcomes = result.parseoutcomes()
    assert result.ret == 0
    if how == "compiled" and why_no_gpu():
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*: compiled for sm_90, gfx942, not run: *"])
        return
    assert outcomes.get("passed", 0) >= 1
    assert "skipped" not in outcomes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_is_run(page: Path) -> None:
    text = page.read_text()
    of_tutorial = text.count("<!-- file: ")  # which test_tutorial.py writes
    assert text.count("```python") == len(EXAMPLE.findall(text)) + of_tutorial


def test_every_option_marker_and_metric_is_in_the_reference() -> None:
    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.limits.kinds import KINDS
    from pytest_kernelprof.plugin.settings import OPTIONS

    pages = [ROOT / "docs" / name for name in ("reference.md", "options.md")]
    text = "\n".join(page.read_text() for page in pages)
    names = list(KINDS)
    for option in OPTIONS:
        if option.group:
            value = f"={option.kind.metavar}".replace("|", r"\|") if option.kind.metavar else ""
            names.append(f"| `{option.flag}{value}` |")
        else:
            names.append(f"| ini only: `{option.key}` |")
    trace = ROOT / "tests" / "traces" / "mlp.json.gz"
    names += [m for m in Profile.from_trace(trace).metrics if not re.search("_[hdp]2[hdp]$", m)]
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


OUTPUT = re.compile(r"^```\n((?:max_|\d+ of ).*?)```", re.DOTALL | re.MULTILINE)
RUN = str(ROOT / "benchmarks" / "results" / "h200-example.json")


@functools.cache
def told() -> list[str]:
    """The report and the messages of the worked example's run on an H200, line by line."""
    messages = runpy.run_path(str(ROOT / "benchmarks" / "messages.py"))["messages"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["report", RUN]) == 0
    lines = "\n".join([printed.getvalue(), *messages(read_run(RUN))]).splitlines()
    return [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("block", OUTPUT.findall((ROOT / "README.md").read_text()))
def test_what_the_readme_shows_is_told_of_a_run_on_the_gpu(block: str) -> None:
    """Line by line and in this order, but for the padding; ``...`` stands for what is left out."""
    shown = [" ".join(line.split()).removesuffix("...") for line in block.splitlines()]
    lines = told()
    begins = [at for at, line in enumerate(lines) if line.startswith(shown[0])]
    assert any(_stands_in(shown, lines[at:]) for at in begins), block


def _stands_in(shown: list[str], lines: list[str]) -> bool:
    """Whether each line is begun by a later one than the line before it."""
    rest = iter(lines)
    return all(any(one.startswith(line) for one in rest) for line in shown if line)


def test_the_readme_shows_a_failure_and_a_report() -> None:
    assert len(OUTPUT.findall((ROOT / "README.md").read_text())) == 2


NAMED = re.compile(r"`((?:unit|integration|gpu)/[\w/]+\.py)(?:::(test_\w+))?`")


@pytest.mark.parametrize(("file", "test"), NAMED.findall((ROOT / "docs" / "trust.md").read_text()))
def test_the_tests_that_the_docs_name_exist(file: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / "tests" / file).read_text() if test else True
    assert (ROOT / "tests" / file).exists()
