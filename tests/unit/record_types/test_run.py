"""Records of a run: the short names of kernels, and the outcome of a profile."""

from __future__ import annotations

import pytest
from records import kernel, mlp

from pytest_kernelprof.records.profile import STATUSES, Metric, Status, Verdict
from pytest_kernelprof.records.recording import Integrity


def test_a_kernel_knows_its_short_name() -> None:
    assert kernel("void ns::gelu<4>(int)").short_name == "gelu"


@pytest.mark.parametrize(
    ("outcomes", "complete", "worst"),
    [
        ([], True, None),
        ([], False, "incomplete"),
        (["passed", "failed", "undecided"], True, "failed"),
        (["passed", "undecided"], True, "undecided"),
        (["not judged", "expected failure"], True, "expected failure"),
        (["passed"], False, "incomplete"),
        (["failed", "passed"], False, "failed"),
        (["undecided"], False, "incomplete"),
        (["expected failure"], False, "incomplete"),
    ],
)
def test_the_worst_outcome_is_that_of_the_profile(
    outcomes: list[Status], complete: bool, worst: Status | None
) -> None:
    profile = mlp(
        integrity=Integrity(() if complete else ("lost",)),
        verdicts=tuple(Verdict(limit="max_kernels", outcome=outcome) for outcome in outcomes),
    )
    assert profile.outcome == worst
    assert worst is None or worst in STATUSES


def test_a_count_is_stable_where_all_its_rounds_agree() -> None:
    assert Metric("kernels", "exact", "count").stable
    assert Metric("kernels", "exact", "count", rounds=(3, 3)).stable
    assert not Metric("kernels", "exact", "count", rounds=(3, 4)).stable
