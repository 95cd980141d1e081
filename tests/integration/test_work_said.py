"""``kernel_profile.work(...)``: said once for the next call or region, or an ERROR says what is
wrong. On the CPU nothing is judged by it."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from reported import errors_of

Run = Callable[..., pytest.RunResult]

MARKED = '@pytest.mark.max_kernels(3)\n@pytest.mark.min_throughput("80%")\n'
FORM = "[Ww]rite kernel_profile.work(flops=2 * m * n * k)"


@pytest.mark.parametrize(
    "lines",
    [
        "kernel_profile.work(flops=2 * 64 ** 3)\n    kernel_profile(three)",
        "kernel_profile.work(flops=2e9, bytes=10**6)\n    kernel_profile(three)",
        "kernel_profile.work(flops=1)\n    kernel_profile.work(bytes=1)\n    kernel_profile(three)",
        "with kernel_profile.region():\n        kernel_profile.work(flops=1)\n        three()",
        "kernel_profile.work(flops=1)\n    with kernel_profile.region():\n        three()",
        "for n in 1, 2:\n        kernel_profile.work(flops=n)\n        kernel_profile(three)",
    ],
    ids=["before a call", "both", "one by one", "in a region", "before a region", "in a loop"],
)
@pytest.mark.parametrize("marked", [MARKED, ""], ids=["marked", "no limit"])
def test_what_is_said_belongs_to_the_next_or_running_measurement(
    run: Run, lines: str, marked: str
) -> None:
    run(f"{marked}def test_it(kernel_profile):\n    {lines}\n").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("work()", f"flops=None, bytes=None: expected a number from 1 to 1e18*{FORM}"),
        ("work(flops=0)", f"flops=0, bytes=None: expected a number from 1 to 1e18*{FORM}"),
        ("work(flops=-1)", f"flops=-1, bytes=None: expected*{FORM}"),
        ("work(flops=True)", f"flops=True, bytes=None: expected*{FORM}"),
        ("work(flops='2 TFLOP')", f"flops='2 TFLOP', bytes=None: expected*{FORM}"),
        ("work(flops=float('nan'))", f"flops=nan, bytes=None: expected*{FORM}"),
        ("work(flops=10**400)", f"flops=1000*, bytes=None: expected*{FORM}"),
        ("work(flops=1, bytes=0)", f"flops=1, bytes=0: expected*{FORM}"),
        ("work(flops=1); kernel_profile.work(flops=1)", "said twice before one measurement*"),
    ],
)
@pytest.mark.parametrize("caught", [False, True], ids=["raised", "caught"])
def test_bad_work_is_an_error_also_if_the_test_catches_it(
    run: Run, lines: str, words: str, caught: bool
) -> None:
    body = f"kernel_profile.{lines}"
    if caught:
        body = f"try: {body}\n    except Exception: pass"
    result = run(f"def test_it(kernel_profile):\n    {body}\n    kernel_profile(three)\n")
    result.assert_outcomes(errors=1)
    text = " ".join(" ".join(result.outlines).split())
    assert fnmatchcase(text, f"*kernel_profile.work: {words}*"), text


@pytest.mark.parametrize(
    "lines",
    [
        "kernel_profile(three)\n    kernel_profile.work(flops=1)",
        "with kernel_profile.region():\n        three()\n    kernel_profile.work(flops=1)",
        "kernel_profile(three)\n    kernel_profile.work(flops=1)\n"
        "    kernel_profile.compare(three, three, check=None)",
    ],
    ids=["call", "region", "comparison"],
)
def test_work_that_no_measurement_follows_is_an_error(run: Run, lines: str) -> None:
    result = run(f"{MARKED}def test_it(kernel_profile):\n    {lines}\n")
    result.assert_outcomes(errors=1, passed=0)
    (said,) = errors_of(result).values()
    assert "nothing was measured after it" in " ".join(said), said


def test_work_is_no_limit_and_takes_nothing_else(run: Run) -> None:
    result = run("def test_it(kernel_profile):\n    kernel_profile.work(3)\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*takes 1 positional argument*"])


def test_on_the_cpu_a_test_with_nothing_else_skips(run: Run) -> None:
    result = run(
        '@pytest.mark.min_bandwidth("3 TB/s")\ndef test_it(kernel_profile):\n'
        "    kernel_profile.work(bytes=10**9)\n    kernel_profile(three)\n"
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *: not applicable on the CPU: min_bandwidth (see *"])


REGIONS = """
@pytest.mark.max_kernels(3)
@pytest.mark.parametrize("ends", ["ends", "raises"])
def test_it(kernel_profile, ends):
    for n in 1, 2:
        kernel_profile.work(flops=n)
        try:
            with kernel_profile.region():
                kernel_profile.work(bytes=n)
                three()
                assert ends == "ends"
        except AssertionError:
            pass
"""


@pytest.mark.parametrize("disabled", [False, True], ids=["measured", "disabled"])
def test_the_work_of_a_region_ends_with_it(run: Run, disabled: bool) -> None:
    result = run(REGIONS, *["--kernelprof-disable"] * disabled)
    result.assert_outcomes(passed=1 + disabled, errors=1 - disabled)
    assert "said twice" not in result.stdout.str()
