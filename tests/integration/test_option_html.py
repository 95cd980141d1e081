"""The option --kernelprof-html: the run as a page, also of workers, and when the run is ended."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

RunIt = Callable[..., pytest.RunResult]
HTML = "--kernelprof-html=out/run.html"
ONE = "def test_it(kernel_profile): kernel_profile(three)\n"


def page(pytester: pytest.Pytester) -> str:
    return (pytester.path / "out" / "run.html").read_text(encoding="utf-8")


@pytest.mark.project(
    """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
""",
    HTML,
)
@pytest.mark.usefixtures("result")
def test_it_has_verdicts_kernels_lines_and_timelines(pytester: pytest.Pytester) -> None:
    found = page(pytester)
    words = re.sub(r"<[^>]+>", "", found)
    assert "1 of 2 tests breaks a limit" in words
    assert "test_it.py:5" in words
    for name in ("aten::mm", "aten::gelu", "aten::add"):
        assert name in words
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', found)
    timelines = [one["drawn"][0]["timeline"] for one in json.loads(data)["details"].values()]
    assert len(timelines) == 2
    assert all(timelines)


def test_the_last_lines_say_where_it_is(run: RunIt) -> None:
    run(ONE, HTML).stdout.fnmatch_lines(["kernelprof: *out/run.html: * KB"])


def test_a_run_that_was_ended_has_a_page_that_says_so(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(f"{ONE}def test_ends(): pytest.exit('enough')\n", HTML)
    assert "interrupted: enough" in page(pytester)
    assert "test_it" in page(pytester)


def test_a_folder_in_its_place_is_a_usage_error(run: RunIt, pytester: pytest.Pytester) -> None:
    (pytester.path / "out" / "run.html").mkdir(parents=True)
    result = run(ONE, HTML)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kernelprof-html: * cannot be written (it is a folder)"])


def test_hostile_parameters_stay_text(run: RunIt, pytester: pytest.Pytester) -> None:
    run(
        """
@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "</style>", "\\x1b[31m", "\\ud800"])
def test_it(kernel_profile, text): kernel_profile(three)
""",
        HTML,
    )
    found = page(pytester)
    assert len(re.findall("<script", found)) == 2
    assert "&lt;script&gt;alert(1)" in found
