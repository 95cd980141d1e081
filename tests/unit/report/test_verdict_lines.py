"""One limit and how it fared, in one line that is the same everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernelprof.records.profile import Hit, Mismatch, Verdict
from pytest_kernelprof.summary.verdicts import verdict_line


def count(measured: float, allowed: float, limit: str = "max_kernels", **more: Any) -> Verdict:
    outcome = more.pop("outcome", "failed" if measured > allowed else "passed")
    facts: dict[str, Any] = {"metric": "kernels", "unit": "count", "rounds": 2, **more}
    return Verdict(limit=limit, outcome=outcome, measured=measured, allowed=allowed, **facts)


def time(measured: float, allowed: float, **more: Any) -> Verdict:
    outcome = more.pop("outcome", "failed" if measured > allowed else "passed")
    facts: dict[str, Any] = {"limit": "max_cuda_time", "metric": "cuda_time", "rounds": 24, **more}
    return Verdict(outcome=outcome, unit="us", measured=measured, allowed=allowed, **facts)


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (count(5, 1), "max_kernels: 5 > limit 1"),
        (count(3, 4), "max_kernels: 3 <= 4"),
        (count(2, 1, qualifier="elementwise"), "max_kernels(match='elementwise'): 2 > limit 1"),
        (count(1, 0, "max_memcpys", qualifier="d2h"), "max_memcpys(d2h): 1 > limit 0"),
        (count(5, 1, outcome="expected failure"), "max_kernels: 5 > limit 1"),
        (count(7, 0, "max_syncs", metric="syncs"), "max_syncs: 7 > limit 0"),
    ],
)
def test_a_count_stands_beside_its_limit(verdict: Verdict, line: str) -> None:
    assert verdict_line(verdict) == line


@pytest.mark.parametrize(
    ("measured", "allowed", "line"),
    [
        (150_994_944, 10**6, "max_peak_memory: 151 MB > limit 1 MB"),
        (10**6, 10**6, "max_peak_memory: 1 MB <= 1 MB"),
        (150_994_944, 150_900_000, "max_peak_memory: 150994944 B > limit 150900000 B"),
    ],
    ids=["over", "equal", "alike when rounded"],
)
def test_a_size_is_told_in_units_that_tell_it_from_its_limit(
    measured: float, allowed: float, line: str
) -> None:
    verdict = count(measured, allowed, "max_peak_memory", metric="peak_memory", unit="bytes")
    assert verdict_line(verdict) == line


@pytest.mark.parametrize(("note", "state"), [("", "UNSTABLE"), ("incomplete", "incomplete")])
def test_counts_that_differ_are_told_one_by_one(note: str, state: str) -> None:
    assert verdict_line(count(5, 4, values=(4.0, 5.0), note=note)) == (
        f"max_kernels: 5 > limit 4 ({state}: 4, 5 in 2 rounds, the largest counts)"
    )


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            time(234.9, 200.0, low=234.1, high=236.0),
            "max_cuda_time: 234.9us > limit 200.0us (+17.5 %, 99 % CI 234.1..236.0us, 24 rounds)",
        ),
        (
            time(180.0, 200.0, low=179.0, high=181.0),
            "max_cuda_time: 180.0us <= 200.0us (-10.0 %, 99 % CI 179.0..181.0us, 24 rounds)",
        ),
        (
            time(100.0, 1.0, low=99.0, high=101.0, rounds=12),
            "max_cuda_time: 100.0us > limit 1.0us (x100, 99 % CI 99.0..101.0us, 12 rounds)",
        ),
        (
            time(42.0, 0.01, low=41.0, high=43.0, rounds=12),
            "max_cuda_time: 42.0us > limit 0.01us (x4,200, 99 % CI 41.0..43.0us, 12 rounds)",
        ),
        (
            time(100.0, 90.0, low=99.0, high=101.0, block=3),
            "max_cuda_time: 100.0us > limit 90.0us (+11.1 %, 99 % CI 99.0..101.0us, 24 rounds in "
            "blocks "
            "of 3)",
        ),
        (
            time(100.0, 90.0, rounds=1),
            "max_cuda_time: 100.0us > limit 90.0us (+11.1 %, 1 round, too few for an interval)",
        ),
        (
            time(100.0, 90.0, rounds=7),
            "max_cuda_time: 100.0us > limit 90.0us (+11.1 %, 7 rounds, too few for an interval)",
        ),
        (
            time(100.0, 0.0, low=99.0, high=101.0),
            "max_cuda_time: 100.0us > limit 0.0us (99 % CI 99.0..101.0us, 24 rounds)",
        ),
        (
            time(100.0, 90.0, low=99.0, high=101.0, note="CUPTI is attached", second_look=95.0),
            "max_cuda_time: 100.0us > limit 90.0us (+11.1 %, 99 % CI 99.0..101.0us, 24 rounds; "
            "CUPTI is "
            "attached; a second look: 95.0us)",
        ),
        (
            time(60.0, 54.0, low=59.0, high=61.0, share=0.3, share_of=180.0, limit="max_launch"),
            "max_launch: 60.0us > limit 54.0us (30% of the latency 180.0us, +11.1 %, 99 % CI "
            "59.0..61.0us, 24 rounds)",
        ),
        (
            time(60.0, 54.0, rounds=1, share=0.125, share_of=432.0, limit="max_launch"),
            "max_launch: 60.0us > limit 54.0us (12.5% of the latency 432.0us, +11.1 %, 1 round, "
            "too "
            "few for an interval)",
        ),
    ],
    ids=[
        *("failed", "passed", "many times over", "thousands", "blocks", "one round", "few rounds"),
        *("limit zero", "note and second look", "share", "share with a fraction"),
    ],
)
def test_a_time_says_how_far_how_sure_and_of_how_many_rounds(verdict: Verdict, line: str) -> None:
    assert verdict_line(verdict) == line


@pytest.mark.parametrize(
    ("reason", "doubt", "words"),
    [
        ("interval", "", "too close to the limit to call"),
        ("alike", "", "neighbouring rounds are too alike"),
        ("second look", "", "the second look does not confirm it"),
        ("disturbed", "", "the GPU was disturbed"),
        ("disturbed", "CONTENDED: by pid 7", "CONTENDED: by pid 7"),
        ("interval", "CONTENDED: by pid 7", "too close to the limit to call"),
    ],
)
def test_an_undecided_time_says_why(reason: Any, doubt: str, words: str) -> None:
    verdict = time(199.8, 200.0, low=199.0, high=201.0, outcome="undecided", reason=reason)
    assert verdict_line(verdict, doubt) == (
        "max_cuda_time: 199.8us, limit 200.0us (-0.1 %, 99 % CI 199.0..201.0us, 24 rounds): "
        f"undecided, {words}"
    )


def test_many_rounds_without_an_interval_are_not_called_few() -> None:
    verdict = time(199.8, 200.0, rounds=12, outcome="undecided", reason="alike")
    assert "(-0.1 %, 12 rounds, no interval)" in verdict_line(verdict)


@pytest.mark.parametrize(
    ("outcome", "why"),
    [("incomplete", "not measured: it needs more"), ("not judged", "not applicable on the CPU")],
)
def test_what_was_not_judged_says_why(outcome: Any, why: str) -> None:
    verdict = Verdict(limit="max_latency", outcome=outcome, why=why, metric="latency", unit="us")
    assert verdict_line(verdict) == f"max_latency: {why}"


def names(limit: str, **facts: Any) -> str:
    facts.setdefault("outcome", "failed")
    return verdict_line(Verdict(limit=limit, measured=5.0, **facts))


@pytest.mark.parametrize(
    ("mismatch", "patterns", "words"),
    [
        (
            Mismatch(5, 2, "gelu_kernel", ("aten::gelu", "aten::b", "aten::c"), ("relu",)),
            ("mm", "relu", None),
            "kernel 2: expected 'relu', got gelu_kernel (aten::gelu in aten::c); 5 kernels, "
            "expected 'mm', 'relu', ...",
        ),
        (
            Mismatch(5, 2, "triton_poi", ("## Call CompiledFxGraph f1 ##", "aten::b"), ("relu",)),
            ("mm", "relu"),
            "kernel 2: expected 'relu', got triton_poi (aten::b); 5 kernels, expected 'mm', 'relu'",
        ),
        (
            Mismatch(5, 2, "aten::gelu", ("aten::gelu",), ("relu",)),  # on the CPU
            ("mm", "relu"),
            "kernel 2: expected 'relu', got aten::gelu; 5 kernels, expected 'mm', 'relu'",
        ),
        (
            Mismatch(5, 2, "gelu_kernel", (), ("a", "b")),
            ("mm", "a"),
            "kernel 2: expected 'a' or 'b', got gelu_kernel (no operator); 5 kernels, expected "
            "'mm', 'a'",
        ),
        (
            Mismatch(5, 2, "gelu_kernel", ("aten::gelu",)),
            ("mm",),
            "unexpected kernel 2: gelu_kernel (aten::gelu); 5 kernels, expected 'mm'",
        ),
        (
            Mismatch(5, 1, "gelu_kernel", ("aten::gelu",)),
            (),
            "unexpected kernel 1: gelu_kernel (aten::gelu); 5 kernels, expected no kernels",
        ),
        (
            Mismatch(5, wanted=("add", "mul")),
            (None, "add", "mul"),
            "no kernel for 'add' or 'mul'; 5 kernels, expected ..., 'add', 'mul'",
        ),
    ],
)
def test_the_first_unexpected_kernel_is_named_before_all_that_were_expected(
    mismatch: Mismatch, patterns: tuple[str | None, ...], words: str
) -> None:
    line = names("expect_kernels", patterns=patterns, mismatch=mismatch)
    assert line == f"expect_kernels: {words}"


def test_expected_kernels_that_came_are_counted() -> None:
    assert names("expect_kernels", outcome="passed") == "expect_kernels: all 5 kernels as expected"


def test_a_forbidden_kernel_is_named_with_its_pattern() -> None:
    hits = (Hit(2, "gelu_kernel", "gelu"),)
    line = names("forbid_kernels", qualifier="gelu|relu", patterns=("gelu", "relu"), hits=hits)
    assert line == "forbid_kernels: 1 forbidden kernel ran: #2 gelu_kernel ('gelu')"


def test_many_forbidden_kernels_are_cut_short() -> None:
    hits = tuple(Hit(i, "k", ".") for i in range(1, 17))
    line = names("forbid_kernels", qualifier=".", patterns=(".",), hits=hits)
    assert line == (
        "forbid_kernels: 16 forbidden kernels ran: #1 k ('.'), #2 k ('.'), #3 k ('.'), #4 k ('.'), "
        "and 12 more"
    )


def test_no_forbidden_kernels_are_counted_among_all() -> None:
    line = names("forbid_kernels", outcome="passed", qualifier=".", patterns=(".",))
    assert line == "forbid_kernels: none of 5 kernels is forbidden"
