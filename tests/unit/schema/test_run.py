"""Records of a run: the short names of kernels, and the outcome of a profile."""

from __future__ import annotations

import pytest
from records import kernel, mlp

from pytest_kernelprof.schema.run import OUTCOMES, Integrity, Metric, Outcome, Verdict, shorten


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::reduce_kernel<512, 1>(int)", "reduce_kernel"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", None),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax"),
        ("aten::mm", None),
        ("triton_poi_fused_gelu_mul_0", None),
    ],
)
def test_short_names_drop_what_is_common(name: str, short: str | None) -> None:
    assert shorten(name) == (short or name)


def test_a_kernel_knows_its_short_name() -> None:
    assert kernel("void ns::gelu<4>(int)").short_name == "gelu"


@pytest.mark.parametrize(
    ("outcomes", "complete", "worst"),
    [
        ([], True, None),
        ([], False, "incomplete"),
        (["kept", "over", "undecided"], True, "over"),
        (["kept", "undecided"], True, "undecided"),
        (["not judged", "expected"], True, "expected"),
        (["kept"], False, "incomplete"),
        (["over", "kept"], False, "over"),
        (["undecided"], False, "incomplete"),
        (["expected"], False, "incomplete"),
    ],
)
def test_the_worst_outcome_is_that_of_the_profile(
    outcomes: list[Outcome], complete: bool, worst: Outcome | None
) -> None:
    profile = mlp(
        integrity=Integrity(() if complete else ("lost",)),
        verdicts=tuple(Verdict(limit="max_kernels", outcome=outcome) for outcome in outcomes),
    )
    assert profile.outcome == worst
    assert worst is None or worst in OUTCOMES


def test_a_count_is_stable_where_all_its_rounds_agree() -> None:
    assert Metric("kernels", "exact", "count").stable
    assert Metric("kernels", "exact", "count", (3, 3)).stable
    assert not Metric("kernels", "exact", "count", (3, 4)).stable
