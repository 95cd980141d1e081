"""What pytest shows of failures and errors: no frame of ours, the test's line, a short summary."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree

import pytest

Run = Callable[..., pytest.RunResult]

RAISES = """
def breaks(*args): raise ValueError("mine")
def cause(): raise KeyError("first")
def breaks_for_a_cause():
    try: cause()
    except KeyError as error: raise ValueError("mine") from error
class Breaks(torch.nn.Module):
    def forward(self, x): breaks()
def test_call(kernel_profile, kernelprof_device):
    kernel_profile(breaks)
def test_module(kernel_profile, kernelprof_device):
    kernel_profile(Breaks(), x)
def test_cause(kernel_profile, kernelprof_device):
    kernel_profile.run(breaks_for_a_cause)
def test_setup(kernel_profile, kernelprof_device):
    kernel_profile.run(three, setup=breaks)
def test_region(kernel_profile, kernelprof_device):
    with kernel_profile.region("r"): breaks()
@pytest.mark.max_kernels(9)
def test_whole():
    breaks()
def test_compare(kernel_profile, kernelprof_device):
    kernel_profile.compare(three, breaks)
@pytest.mark.min_speedup(1, over=breaks)
def test_promise(kernel_profile, kernelprof_device):
    kernel_profile(three)
def test_benchmark(kernel_benchmark, kernelprof_device):
    kernel_benchmark(breaks)
def test_argument(kernel_profile, kernelprof_device):
    kernel_profile(three())
def test_limit(kernel_profile, kernelprof_device):
    kernel_profile.limit(max_kernels="many")
def test_unknown(kernel_profile, kernelprof_device):
    kernel_profile.limit(max_kernel=3)
def test_region_limit(kernel_profile, kernelprof_device):
    with kernel_profile.region("r", syncs=3): pass
def test_option(kernel_profile, kernelprof_device):
    kernel_profile.run(three, rounds="many")
def test_nested(kernel_profile, kernelprof_device):
    with kernel_profile.region("outer"):
        with kernel_profile.region("inner"): pass
def test_too_early(kernel_profile, kernelprof_device):
    with kernel_profile.region("r") as region: region.profile
def test_assertion(kernel_profile, kernelprof_device):
    kernel_profile.compare(three, three).min_speedup(1000)
"""


@pytest.mark.parametrize("style", ["auto", "long", "short", "native"])
def test_no_style_shows_a_frame_of_ours(run: Run, style: str) -> None:
    result = run(RAISES, f"--tb={style}", "-p", "benchmark")
    ours = [
        line
        for line in result.outlines
        if re.search(r"pytest_kernelprof/\w+/\w+\.py|contextlib\.py", line)
    ]
    assert ours == []
    result.stdout.fnmatch_lines(["*ValueError: mine"])
    result.stdout.fnmatch_lines(["*KeyError: 'first'"])


def test_all_frames_are_there_on_request(run: Run) -> None:
    result = run(RAISES, "--full-trace", "-k", "test_call")
    result.stdout.fnmatch_lines(["*pytest_kernelprof/plugin/fixture.py:*"])


FAILS = """
import time
@pytest.mark.max_kernels(1)
def test_of_a_rather_long_name(kernel_profile):
    kernel_profile(three)  # over
def test_a_promise_of_a_long_name(kernel_profile, kernelprof_device):
    kernel_profile.compare(three, lambda: None).min_speedup(1000)  # promise
@pytest.mark.max_latency("1s")
def test_error_of_a_rather_long_name():  # error
    three()
@pytest.mark.max_kernels("many")
def test_malformed_of_a_long_name(): pass
def test_unknown_of_a_long_name(kernel_profile, kernelprof_device):
    kernel_profile.limit(max_kernel=3)  # unknown
"""


def test_the_short_summary_begins_with_what_is_wrong(run: Run) -> None:
    result = run(FAILS, "-rfE")
    result.stdout.fnmatch_lines_random(
        [
            "FAILED test_it.py::test_of_a_rather_long_name - max_kernels: 3 > limit 1",
            "FAILED test_it.py::test_a_promise_of_a_long_name - min_speedup(1000): *",
            "ERROR test_it.py::test_error_of_a_rather_long_name - max_*",
            "ERROR test_it.py::test_malformed_of_a_long_name - MarkerError: max_kernels: *",
            "ERROR test_it.py::test_unknown_of_a_long_name - MarkerError: unknown limit*",
        ]
    )


SEVERAL_LIMITS = """
def thrice(): return x.cos().cos().sin()
@pytest.mark.max_kernels(1)
def test_one(kernel_profile, kernelprof_device):
    kernel_profile(thrice)
@pytest.mark.max_kernels(1)
@pytest.mark.forbid_kernels("sin")
def test_two(kernel_profile, kernelprof_device):
    kernel_profile(thrice)
@pytest.mark.max_kernels("many")
def test_malformed(): pass
"""


def test_the_short_summary_has_the_first_limit_without_its_kernels_and_counts_the_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")  # where nothing is cut
    result = run(SEVERAL_LIMITS, "-rfE")
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 1"])
    lines = [line for line in result.outlines if line.startswith(("FAILED ", "ERROR "))]
    malformed, one, two = sorted(lines)
    assert one == "FAILED test_it.py::test_one - max_kernels: 3 > limit 1"
    assert two == "FAILED test_it.py::test_two - max_kernels: 3 > limit 1 (+1 more limit exceeded)"
    assert re.fullmatch(r"ERROR test_it.py::test_malformed - MarkerError: [^.]*\. .*", malformed)


def test_what_may_be_allowed_is_light_in_each_of_its_lines(run: Run) -> None:
    code = """
@pytest.mark.max_kernels(1)
@pytest.mark.max_kernels(0, match="cos")
@pytest.mark.max_kernels(0, match="sin")
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(lambda: x.cos().cos().sin())
"""
    result, light = run(code, "--color=yes"), "\x1b[2m"
    (at,) = [at for at, line in enumerate(result.outlines) if "  if intended" in line]
    sentence = list(takewhile(str.strip, result.outlines[at:]))
    assert len(sentence) > 1
    assert all(line.startswith(light) for line in sentence)


def test_in_a_failure_marked_rows_are_red_and_the_label_of_what_to_do_is_bold(run: Run) -> None:
    twice = FAILS.replace("kernel_profile(three)", "kernel_profile(lambda: x.cos().cos().sin())")
    result = run(twice, "--color=yes", "-k", "test_of_a_rather_long_name")
    red, bold, off = "\x1b[31m", "\x1b[1m", "\x1b[0m"
    (marked,) = [line for line in result.outlines if "> 1..2 " in line]
    assert re.fullmatch(rf"{re.escape(red)}> 1.*aten::cos x2 .*{re.escape(off)}", marked)
    assert any(re.fullmatch(r"     3 .*aten::sin .*", line) for line in result.outlines)
    assert f"{bold}  to do: {off}call fewer operators" in result.outlines
    cyan, light = "\x1b[36m", "\x1b[2m"
    at = result.outlines.index(f"{cyan}  at test_it.py:10{off}")
    assert result.outlines[at + 1 : at + 4] == [
        f"{cyan}    10 | {off}kernel_profile(lambda: x.cos().cos().sin())  # over",
        f"{cyan}       | {off}{red}aten::cos x2, launched most often{off}",
        f"{cyan}       | {off}{red}aten::sin{off}",
    ]
    (intended,) = [line for line in result.outlines if line.startswith(f"{light}  if intended")]
    assert re.fullmatch(r".*  if intended, allow max_kernels\(3\) at test_it\.py:\d+.*", intended)


def test_the_place_of_a_failure_is_the_line_of_the_test(
    run: Run, pytester: pytest.Pytester
) -> None:
    # What plugins that annotate lines read.
    pytester.makeconftest(
        "def pytest_runtest_logreport(report):\n"
        "    if report.failed: print('crash', report.longrepr.reprcrash)\n"
    )
    result = run(FAILS, "-s", "--junitxml=out.xml")
    written = (pytester.path / "test_it.py").read_text().splitlines()
    line = {text.rpartition("# ")[2]: i for i, text in enumerate(written, 1) if "  # " in text}
    result.stdout.fnmatch_lines_random(
        [
            f"*crash */test_it.py:{line['over']}: max_kernels: 3 > limit 1",
            f"*crash */test_it.py:{line['promise']}: min_speedup(1000): *",
            f"*crash */test_it.py:{line['error'] - 1}: max_latency*",
            f"*crash */test_it.py:{line['error'] + 2}: MarkerError: max_kernels: *",
            f"*crash */test_it.py:{line['unknown']}: MarkerError: unknown limit 'max_kernel' "
            "(did you mean max_kernels?)*",
        ]
    )
    cases = ElementTree.fromstring(Path("out.xml").read_text()).iter("testcase")
    told = {case.get("name"): one.get("message", "") for case in cases for one in case}
    assert told["test_of_a_rather_long_name"] == "max_kernels: 3 > limit 1"


SEVERAL = """
@pytest.mark.max_kernels(2)
@pytest.mark.parametrize("n", (1, 2))
def test_same(kernel_profile, kernelprof_device, n):
    kernel_profile(three)
@pytest.mark.max_kernels(0)
def test_another(kernel_profile, kernelprof_device):
    kernel_profile(torch.add, x, x)
"""


@pytest.mark.parametrize("more", [[], ["-n2"]], ids=["-n0", "-n2"])
def test_kernels_of_several_failures_are_told_once(run: Run, more: list[str]) -> None:
    out = run(SEVERAL, *more).stdout
    out.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 2*",
            "  same as test_same[[]?], at test_it.py:5",
        ]
    )
    assert str(out).count("  same as test_") == 1
    assert str(out).count("E   max_kernels: 3 > limit 2") == 2


def test_one_empty_line_ends_each_failure(run: Run) -> None:
    lines = run(SEVERAL, "-rN").outlines
    heads = [at for at, line in enumerate(lines) if re.match(r"_+ test_|=+ 3 failed", line)]
    assert len(heads) == 4
    assert [lines[at - 1] for at in heads[1:]] == [""] * 3
    assert all(lines[at - 2].strip() for at in heads[1:])


ELSEWHERE = """
@pytest.mark.max_kernels(2)
@pytest.mark.parametrize("n", (1,))
def test_elsewhere(kernel_profile, kernelprof_device, n):
    kernel_profile(three)
"""


def test_lines_of_code_that_the_first_of_several_failures_has_are_not_told_again(run: Run) -> None:
    out = str(run(SEVERAL + ELSEWHERE).stdout)
    assert out.count("  same as test_same[1], at test_it.py:5\n") == 2
    assert out.count("  at test_it.py:5\n") == out.count("    5 | return F.gelu(") == 1
    assert out.count(": kernel_profile(three)") == 1  # of two calls, of three tests


MARKED = """
def twice(): return x.cos().cos()
@pytest.mark.max_kernels(1)
def test_first(kernel_profile, kernelprof_device):
    kernel_profile(lambda: twice().sin())
@pytest.mark.max_kernels(2)
def test_equal_where_marked(kernel_profile, kernelprof_device):
    kernel_profile(lambda: twice().sin().tan())
@pytest.mark.max_kernels(1)
def test_other(kernel_profile, kernelprof_device):
    kernel_profile(lambda: x.tan().tan().sin())
"""


def test_failures_are_as_another_where_their_marked_rows_are(run: Run) -> None:
    out = str(run(MARKED).stdout)
    assert out.count("  same as test_first, ") == 1
    below = out.partition("_ test_equal_where_marked _")[2].partition("_ test_other _")[0]
    assert "\n  same as test_first, at test_it.py:7: aten::cos x2, launched most often\n" in below
    assert out.count("\n> 1..2 ") == 2  # of the first, and of the other


OTHERS = """
@pytest.mark.parametrize("n", (1, 2))
def test_plain(n):
    one = {}

    two = 2
    three = 3
    four = 4
    assert one["a"] == two
"""


def test_failures_of_others_are_told_as_pytest_tells_them(run: Run) -> None:
    out = str(run(SEVERAL + OTHERS).stdout)
    assert out.count("  same as test_") == 1
    assert out.count('>       assert one["a"] == two') == 2


def test_with_v_each_failure_tells_its_kernels(run: Run) -> None:
    assert "  same as test_" not in str(run(SEVERAL, "-v").stdout)


REWRITTEN = """
import pytest
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.longrepr = f"told by another plugin: {report.nodeid}"
    return report
"""


def test_failures_that_another_plugin_tells_stay_as_they_are(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(REWRITTEN)
    result = run(SEVERAL)
    result.assert_outcomes(failed=3)
    assert str(result.stdout).count("told by another plugin: ") >= 3
    assert "INTERNALERROR" not in str(result.stdout) + str(result.stderr)


def test_junit_has_each_failure_whole(run: Run, pytester: pytest.Pytester) -> None:
    run(SEVERAL, "--junitxml=junit.xml")
    told = ElementTree.parse(pytester.path / "junit.xml").iter("failure")
    assert [str(one.text).count("to do: ") for one in told] == [1, 1, 1]
