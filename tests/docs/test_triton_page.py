"""The page about Triton's benchmark files: its file runs as it stands, but for the device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "triton-benchmarks.md"


def test_the_file_of_the_page_is_a_test_for_each_configuration(pytester: pytest.Pytester) -> None:
    pytest.importorskip("triton.testing", reason="Triton is not installed")
    blocks = dict(re.findall(r"```(ini|py)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    pytester.makeini("[pytest]\n" + blocks["ini"])
    pytester.makepyfile(bench_relu=blocks["py"].replace('"cuda"', '"cpu"'))
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "-p", "no:randomly", "-v", "--kernelprof-device=cpu")
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["bench_relu.py::benchmark[[]relu-M=128-torch] PASSED*"])
