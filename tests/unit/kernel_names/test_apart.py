"""Short names where two must not be one: within a report, and in files that are kept."""

from __future__ import annotations

import re
import time

import pytest
from corpus import NAMES, record
from test_short import CASES

from pytest_kernelprof.kernel_names.short_names import (
    comparable_name,
    kept_name,
    short_name,
    tell_apart,
)


def added(kind: str) -> str:
    """ATen's addition of two tensors of a type."""
    template = f"4, at::native::CUDAFunctor_add<{kind}>, std::array<char*, 3ul> "
    return f"void at::native::vectorized_elementwise_kernel<{template}>(int)"


def unrolled(width: int) -> str:
    return added("float").replace("<4,", f"<{width},")


ADD = "vectorized_elementwise [add]"
COOP = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coop{}_TNT"
JET = "nvjet 256x128x64 TNT"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([added("float")], [ADD]),
        ([added("float"), added("double")], [f"{ADD} float", f"{ADD} double"]),
        ([unrolled(4), unrolled(8)], [f"{ADD} <4>", f"{ADD} <8>"]),
        ([COOP.format("A"), COOP.format("B")], [f"{JET} coopA", f"{JET} coopB"]),
        ([COOP.format("A"), COOP.format("A").replace("tst", "hsh")], [f"{JET} tst", f"{JET} hsh"]),
        ([COOP.format("A"), COOP.format("A_odd")], [JET, f"{JET} odd"]),
        (
            [added("float"), unrolled(8), added("double")],
            [f"{ADD} float <4>", f"{ADD} float <8>", f"{ADD} double"],
        ),
        (["void f<1>(int)", "void f<1>(long)"], ["f", "f #2"]),
        (["triton_poi_fused_mul_0", "triton_poi_fused_mul_7"], None),
        (["f", "void f<1>(int)", "f #2"], None),
        ([], []),
    ],
)
def test_two_of_one_short_name_are_told_apart(names: list[str], told: list[str] | None) -> None:
    found = tell_apart(names)
    assert len(set(found.values())) == len(set(names))
    if told is not None:
        assert [found[name] for name in names] == told
    assert found == tell_apart([*reversed(names), *names])  # of the set alone


def test_no_two_recorded_names_are_one() -> None:
    names = {k.name for trace in NAMES for k in record(trace).kernels}
    names |= {name for name, _ in CASES.values()}
    found = tell_apart(names)
    assert set(found) == names
    assert len(set(found.values())) == len(names)


@pytest.mark.parametrize(
    ("functor", "short"),
    [
        ("GeluCUDAKernelImpl", "vectorized_elementwise [gelu]"),
        ("FillFunctor<signed char>", "vectorized_elementwise [fill] char"),  # int8
    ],
)
def test_a_pointer_to_data_of_any_type_is_no_type(functor: str, short: str) -> None:
    inside = f"4, at::native::{functor}, std::array<char*, 1ul> "
    name = f"void at::native::vectorized_elementwise_kernel<{inside}>(int)"
    assert re.fullmatch(rf"{re.escape(short)} [0-9a-f]{{4}}", kept_name(name))


def test_what_is_kept_does_not_depend_on_others() -> None:
    assert kept_name(added("float")).startswith(f"{ADD} float ")
    assert kept_name(added("float")) != kept_name(unrolled(8))
    assert kept_name(COOP.format("A")) == kept_name(COOP.format("B")) == f"{JET} tst"
    assert kept_name("triton_poi_fused_mul_0") == kept_name("triton_poi_fused_mul_7")
    assert kept_name("aten::mm") == "aten::mm"


def test_what_is_kept_is_called_as_it_stands() -> None:
    names = {k.name for trace in NAMES for k in record(trace).kernels}
    kept = {kept_name(name) for name in (*names, *(name for name, _ in CASES.values()))}
    assert {name: short_name(name) for name in kept} == {name: name for name in kept}


def test_what_inductor_fused_is_one_whatever_was_compiled_before() -> None:
    for make in (kept_name, comparable_name):
        assert make("graph_0_cpp_fused_gelu_mul_0") == make("graph_3_cpp_fused_gelu_mul_1")
        assert make("graph_0_cpp_fused_gelu_mul_0") == make("cpp_fused_gelu_mul_0")


NOTED = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
    "at::native::BinaryFunctor<float, float, bool, at::native::(anonymous namespace)::F<true> > >"
    "(at::TensorIteratorBase&)::{lambda(int)#1}, std::array<char*, 3ul> >(int, float)"
)


@pytest.mark.parametrize(
    "other",
    [
        NOTED.replace("> >", ">>"),
        NOTED.replace("(anonymous namespace)::", "<unnamed>::"),
        NOTED.replace("128, 2,", "(int)128, (int)2,").replace("3ul", "(unsigned long)3"),
        NOTED.replace("<true>", "<(bool)1>"),
        NOTED.replace("std::array<char*, 3ul>", "at::detail::Array<char*, 3>"),
        NOTED.replace("{lambda(int)#1}", "[lambda(int) (instance 1)]").replace("&)", " &)"),
        NOTED.replace("(int, float)", "(int, T2)"),
        NOTED.replace("at::native::gpu_kernel_impl", "void at::native::gpu_kernel_impl"),
    ],
)
def test_what_is_kept_is_one_for_all_demanglers(other: str) -> None:
    assert kept_name(other) == kept_name(NOTED)
    assert other != NOTED


def test_what_lies_beyond_what_is_read_still_counts() -> None:
    long = "void f<" + "a, " * 20_000
    one, other = long + "b>(int)", long + "c>(int)"
    assert kept_name(one) != kept_name(other)
    assert set(tell_apart([one, other]).values()) == {"f", "f #2"}


def test_many_long_names_are_told_apart_in_time_that_grows_with_them() -> None:
    names = [f"void f<{'a<' * 20_000}{i}>(int)" for i in range(4)]
    started = time.process_time()
    assert len(set(tell_apart(names).values())) == 4
    assert time.process_time() - started < 10


@pytest.mark.parametrize("piece", ["f<1, ", "a::", "(int)1", "DF16b", "{lambda(int)#1}", "tru e"])
def test_a_name_of_a_megabyte_is_kept_and_compared_in_bounded_time(piece: str) -> None:
    for begin in ("void f<", "_ZN1fI", "triton_poi_fused_"):
        name = begin + piece * (1_000_000 // len(piece))
        started = time.process_time()
        assert len(kept_name(name)) < 150
        assert len(comparable_name(name)) < 40_000
        assert time.process_time() - started < 2


def test_thousands_that_differ_in_nothing_that_is_said_are_numbered_once_each() -> None:
    names = [f"void foo<int>(float, int{'*' * i})" for i in range(4000)]
    assert len(set(tell_apart(names).values())) == len(names)


def test_type_and_digits_of_names_from_files_are_told_only_where_they_tell_apart() -> None:
    short, one, other = (f"elementwise [mul]{end}" for end in ("", " float 2ada", " float 3bda"))
    assert tell_apart([one, "copy bf16"]) == {one: short, "copy bf16": "copy bf16"}
    assert tell_apart([one, other]) == {one: one, other: other}


def test_the_type_of_names_from_files_is_kept_where_two_differ_by_it_alone() -> None:
    one, other, third = (
        f"elementwise [mul]{end}" for end in (" float 2ada", " bf16 3bda", " 4cda")
    )
    assert tell_apart([one, other]) == {one: one[:-5], other: other[:-5]}
    assert tell_apart([one, third]) == {one: one[:-5], third: third}
