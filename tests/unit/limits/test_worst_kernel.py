"""Limits on what one kernel needs: the worst kernel is judged, and nothing passes unknown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, H200, absent, calls_of, counted, kernel, of_ranks, profile

from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.records.profile import Hit, Kernel, Profile, Verdict
from pytest_kernelprof.records.recording import Integrity

NOT_TRITON = "not compiled by Triton, or no longer in memory"


def needing(name: str, registers: int = 32, shared: int = 0, spills: Any = None) -> Kernel:
    one = kernel(name, "aten::mm")
    return replace(one, registers=registers, shared_memory=shared, spills=spills)


def call(*kernels: Kernel, registers: tuple[float, ...] = (), **more: Any) -> Profile:
    counts = registers or (max((one.registers for one in kernels), default=0),)
    shared = counted("shared_memory", max((one.shared_memory for one in kernels), default=0))
    metrics = (counted("registers", *counts), shared, absent("spills", "not asked for"))
    return profile(kernels, metrics, **more)


GEMM = needing("gemm_kernel", 168, 221_184, 7_872)
ADD = needing("add_kernel", 24, 0, 0)
MUL = needing("mul_kernel", 40, 1_024, 0)
ATEN = needing("vectorized_elementwise_kernel", 30, 0, NOT_TRITON)
BOTH = call(ADD, GEMM, MUL)


def verdict(of: Profile, name: str, *args: Any, **kwargs: Any) -> Verdict:
    return evaluate(of, [parse_limit(name, args, kwargs)])[0]


@pytest.mark.parametrize(
    ("name", "over", "kept", "measured"),
    [
        ("max_registers", 167, 168, 168),
        ("max_shared_memory", "221183 B", "221184 B", 221_184),
        ("max_spills", 0, 7_872, 7_872),
    ],
)
def test_the_worst_kernel_is_judged_and_named(
    name: str, over: Any, kept: Any, measured: float
) -> None:
    failed = verdict(BOTH, name, over)
    assert (failed.outcome, failed.measured) == ("failed", measured)
    assert failed.hits == (Hit(2, "gemm_kernel", ""),)
    assert verdict(BOTH, name, kept).outcome == "passed"


def test_only_kernels_that_match_are_judged() -> None:
    assert verdict(BOTH, "max_registers", 40, match="MUL|add").outcome == "passed"
    assert verdict(BOTH, "max_registers", 39, match="mul|add").hits == (
        Hit(3, "mul_kernel", "mul|add"),
    )
    assert verdict(BOTH, "max_registers", 40, match="aten::mm").outcome == "failed"


def test_another_sequence_of_kernels_counts_too() -> None:
    found = verdict(replace(call(ADD), variants=((GEMM,),)), "max_registers", 100)
    assert (found.outcome, found.hits) == ("failed", (Hit(1, "gemm_kernel", ""),))


@pytest.mark.parametrize(
    ("of", "match", "why"),
    [
        (call(), None, "no kernel ran, so there is none to judge"),
        (BOTH, "softmax", "no kernel matches 'softmax', so there is none to judge"),
    ],
)
def test_a_limit_about_no_kernel_does_not_pass(of: Profile, match: str | None, why: str) -> None:
    for name, allowed in (("max_registers", 255), ("max_shared_memory", "1 MB"), ("max_spills", 9)):
        found = verdict(of, name, allowed, match=match)
        assert (found.outcome, found.why, found.measured) == ("not judged", why, None)


def test_kernels_of_unknown_spills_are_named_and_the_limit_is_not_judged() -> None:
    found = verdict(call(ADD, ATEN), "max_spills", 0)
    assert (found.outcome, found.measured) == ("not judged", None)
    assert found.why == (
        f"spills not known of 1 of 2 kernels: vectorized_elementwise_kernel ({NOT_TRITON}); "
        "judge the others alone, with match="
    )
    assert verdict(call(ADD, ATEN), "max_spills", 0, match="add").outcome == "passed"


def test_of_many_unknown_kernels_three_are_named() -> None:
    several = [needing(f"k{n}", spills="why") for n in range(5)]
    found = verdict(call(*several, *several), "max_spills", 0)
    assert found.why == "spills not known of 10 of 10 kernels: k0 (why); k1 (why); k2 (why); ..."


def test_a_kernel_that_needs_too_much_fails_whatever_is_not_known() -> None:
    assert verdict(call(ATEN, GEMM), "max_spills", 0).outcome == "failed"


def test_spills_that_nobody_asked_for_are_not_judged_and_say_why() -> None:
    found = verdict(call(needing("gemm")), "max_spills", 0)
    assert (found.outcome, found.why) == (
        "not judged",
        "spills not known of 1 of 1 kernels: gemm (not asked for)",
    )


def test_a_trace_without_launch_configurations_is_not_judged() -> None:
    nothing = replace(needing("k", 0), shared_memory=None)
    lost = {name: absent(name) for name in ("registers", "shared_memory")}
    unknown = replace(call(needing("k")), kernels=(nothing,), metrics={**BOTH.metrics, **lost})
    for name, allowed in (("max_registers", 255), ("max_shared_memory", "1 MB")):
        assert verdict(unknown, name, allowed).outcome == "not judged"


def test_more_in_a_round_whose_kernels_are_not_kept_is_no_pass() -> None:
    found = verdict(call(ADD, registers=(24, 128)), "max_registers", 64)
    assert (found.outcome, found.why) == (
        "incomplete",
        "a kernel of another round has 128: make all rounds launch the same",
    )
    assert verdict(call(ADD, registers=(24, 128)), "max_registers", 128).outcome == "passed"


def test_an_incomplete_profile_is_over_or_incomplete() -> None:
    lost = call(GEMM, integrity=Integrity(("2 launches have no kernel",)))
    assert verdict(lost, "max_registers", 100).outcome == "failed"
    assert verdict(lost, "max_registers", 255).outcome == "incomplete"
    assert verdict(lost, "max_registers", 255, match="none").outcome == "incomplete"


def test_kernels_whose_names_are_not_known_are_no_pass() -> None:
    nameless = replace(
        call(GEMM), metrics={**BOTH.metrics, "kernels": absent("kernels", "no names")}
    )
    assert verdict(nameless, "max_registers", 255).outcome == "incomplete"


def test_what_one_rank_cannot_judge_does_not_pass_on_all() -> None:
    for ranks in ((call(ADD), call(ATEN)), (call(ATEN), call(ADD))):
        assert verdict(of_ranks(*ranks), "max_spills", 0).outcome == "not judged"
    assert verdict(of_ranks(call(ATEN), call(GEMM)), "max_spills", 0).ranks == (1,)


def test_on_amd_spills_are_registers() -> None:
    versions = {"torch": "2.11.0", "hip": "7.0"}
    of = call(needing("gemm", spills=12), environment=replace(H200, versions=versions))
    found = verdict(of, "max_spills", 0)
    assert (found.outcome, found.measured, found.unit) == ("failed", 12, "registers")
    assert verdict(BOTH, "max_spills", 0).unit == "bytes"


@pytest.mark.parametrize("name", ["max_registers", "max_spills"])
def test_the_cpu_has_none_of_it(name: str) -> None:
    found = verdict(calls_of(1, environment=CPU), name, 0)
    assert (found.outcome, found.why) == ("not judged", "not applicable on the CPU")


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "message"),
    [
        ("max_registers", ("128",), {}, "'128' is not a whole number. Write max_registers(128) or"),
        ("max_registers", (-1,), {}, "-1 is negative"),
        ("max_registers", (), {}, "takes one value, got none"),
        ("max_registers", (1,), {"match": ""}, "'' is not a pattern"),
        ("max_registers", (1,), {"match": "("}, "is not a regular expression"),
        ("max_shared_memory", (1024,), {}, '1024 has no unit; write a string with one. W'),
        ("max_shared_memory", ("1 parsec",), {}, "no known size unit"),
        ("max_spills", ("0 B",), {}, "'0 B' is not a whole number"),
        ("max_spills", (True,), {}, "True is not a whole number"),
        ("max_spills", (0,), {"matches": "x"}, "unknown argument 'matches'"),
    ],
)  # fmt: skip
def test_a_malformed_limit_says_what_is_wrong_and_how_to_write_it(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=r"Write max_") as raised:
        parse_limit(name, args, kwargs)
    assert message in str(raised.value)


def compiled(*launches: tuple[Kernel, ...], ended: str = "") -> Profile:
    """What was compiled and not run: of each launch the kernel, or that of each configuration."""
    most = max(map(len, launches), default=1)
    first, *others = [tuple((*one, *one[-1:] * most)[at] for one in launches) for at in range(most)]
    metrics = tuple(
        absent(name, "compiled, not run") for name in ("kernels", "registers", "spills")
    )
    of = replace(call(*first), compiled=True, ended=ended, variants=tuple(others))
    where = replace(H200, device="sm_90 (compiled, not run)")
    return replace(of, environment=where, metrics=of.metrics | {one.name: one for one in metrics})


def test_of_kernels_that_were_compiled_only_what_they_need_is_judged() -> None:
    of = compiled((ADD,), (GEMM,))
    failed = verdict(of, "max_spills", 0)
    assert (failed.outcome, failed.measured, failed.target) == ("failed", 7_872, "sm_90")
    assert failed.hits == (Hit(2, "gemm_kernel", ""),)
    assert verdict(of, "max_registers", 168).outcome == "passed"
    for name, *args in (("max_kernels", 9), ("max_cuda_time", "1 s"), ("forbid_kernels", "conv")):
        left = verdict(of, name, *args)
        assert (left.outcome, left.why) == ("not judged", "compiled, not run")


@pytest.mark.parametrize(
    ("allowed", "outcome"), [(167, "failed"), (168, "not judged"), (200, "passed")]
)
def test_all_configurations_of_an_autotuner_have_to_agree(allowed: int, outcome: str) -> None:
    large = replace(GEMM, registers=200)
    found = verdict(compiled((ADD,), (GEMM, large)), "max_registers", allowed)
    assert found.outcome == outcome
    if outcome == "not judged":
        assert found.why == (
            "some configurations of gemm_kernel need up to 200: which one runs, a GPU decides"
        )
    # Two autotuners, each with one that keeps it: nobody knows that one of them breaks it.
    both = compiled((GEMM, replace(GEMM, registers=9)), (replace(GEMM, registers=9), GEMM))
    assert verdict(both, "max_registers", 99).outcome == "not judged"


def test_code_that_ended_early_keeps_nothing_and_breaks_what_it_breaks() -> None:
    early = compiled((ADD,), ended="ValueError: no at it.py:7")
    assert verdict(early, "max_registers", 23).outcome == "failed"
    kept = verdict(early, "max_registers", 24)
    assert kept.outcome == "not judged"
    assert kept.why == (
        "kept by the kernels so far; the code ended early: ValueError: no at it.py:7"
    )
    none = verdict(compiled(ended="ValueError: no at it.py:7"), "max_spills", 0)
    assert none.why == (
        "no Triton kernel was launched, so there is none to judge; the code ended early: "
        "ValueError: no at it.py:7"
    )


def test_a_kernel_that_does_not_compile_is_named_with_the_reason() -> None:
    lost = needing("lost_kernel", 0, 0, "KeyError: maxnreg")
    found = verdict(compiled((ADD,), (lost,)), "max_registers", 64)
    assert found.outcome == "not judged"
    assert "registers not known of 1 of 2 kernels: lost_kernel (KeyError: maxnreg)" in found.why
    assert verdict(compiled((GEMM, lost)), "max_registers", 64).outcome == "not judged"
