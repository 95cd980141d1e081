"""JUnit files: the properties of a test, and the table in the message of its failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

RunIt = Callable[..., pytest.RunResult]
JUNIT = "--junitxml=junit.xml"


def cases(folder: Path) -> dict[str, ElementTree.Element]:
    tree = ElementTree.parse(folder / "junit.xml")
    return {case.attrib["name"]: case for case in tree.iter("testcase")}


def properties(case: ElementTree.Element) -> list[tuple[str, str]]:
    return [(one.attrib["name"], one.attrib["value"]) for one in case.iter("property")]


@pytest.mark.parametrize("options", [(), ("--show-capture=no",), ("--tb=no",)])
def test_a_test_has_its_properties_and_its_failure_the_table(
    run: RunIt, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    run(
        """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile, record_property):
    record_property("mine", 1)
    kernel_profile(three)
def test_plain():
    three()
""",
        JUNIT,
        *options,
    )
    found = cases(pytester.path)
    told = properties(found["test_broken"])
    assert told[0] == ("mine", "1")
    assert ("kernelprof.kernels", "3") in told
    assert ("kernelprof.verdict", "failed") in told
    assert len(told) <= 1 + 8
    assert properties(found["test_plain"]) == []
    (failure,) = found["test_broken"].iter("failure")
    assert failure.attrib["message"] == "max_kernels: 3 > limit 1"
    for name in (
        "E   max_kernels: 3 > limit 1\n",
        "  at test_it.py:5\n    5 | ",
        "aten::mm",
        "aten::gelu",
        "aten::add",
    ):
        assert name in (failure.text or "")


def test_of_a_test_that_is_run_again_the_last_try_is_told(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(
        """
tries = []
@pytest.mark.max_kernels(1)
def test_flaky(kernel_profile):
    tries.append(1)
    kernel_profile(three if len(tries) == 1 else lambda: x + 1)
again = []
@pytest.fixture
def once():
    again.append(1)
    assert len(again) == 1
def test_ends_early(once, kernel_profile):
    kernel_profile(three)
    assert False
""",
        *(JUNIT, "-p", "rerunfailures", "--reruns=1"),
    )
    found = cases(pytester.path)
    told = properties(found["test_flaky"])
    assert [value for name, value in told if name == "kernelprof.kernels"] == ["1"]
    assert ("kernelprof.verdict", "passed") in told
    assert properties(found["test_ends_early"]) == [("kernelprof.verdict", "error")]


def test_what_teardown_takes_counts(run: RunIt, pytester: pytest.Pytester) -> None:
    run(
        """
@pytest.fixture
def late(kernel_profile):
    yield
    kernel_profile(three)
def test_it(kernel_profile, late): kernel_profile(lambda: x + 1)
""",
        JUNIT,
    )
    told = dict(properties(cases(pytester.path)["test_it"]))
    assert (told["kernelprof.kernels"], told["kernelprof.profiles"]) == ("4", "2")


@pytest.mark.project(
    """
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
"""
)
def test_they_come_with_the_reports(result: pytest.RunResult) -> None:
    reports = result.reprec.getreports("pytest_runtest_logreport")  # type: ignore[attr-defined]
    told = [dict(one.user_properties) for one in reports if one.when == "teardown"]
    assert [one["kernelprof.verdict"] for one in told] == ["passed"]
