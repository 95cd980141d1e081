"""The forms of every limit: what is taken, and what is refused with the right form."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import (
    COMPARISONS,
    JUDGED,
    KINDS,
    parse_assertion,
    parse_keyword,
    parse_limit,
    parse_words,
)


def eager() -> None:
    """A reference to compare with."""


def other() -> None:
    """Another one."""


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "bound"),
    [
        ("max_kernels", (3,), {}, 3),
        ("max_kernels", (), {"n": 0, "match": "gelu"}, 0),
        ("max_kernels", (np.int64(3),), {}, 3),
        ("max_launches", (1,), {}, 1),
        ("max_syncs", (0,), {}, 0),
        ("max_allocations", (0,), {}, 0),
        ("max_recompiles", (0,), {}, 0),
        ("max_jit_compiles", (0,), {}, 0),
        ("max_autotunes", (1,), {}, 1),
        ("max_graph_breaks", (2,), {}, 2),
        ("max_cuda_time", ("200us",), {}, 200),
        ("max_cuda_time", (), {"us": 200}, 200),
        ("max_cuda_time", (), {"ms": 0.2}, 200),
        ("max_latency", ("1ms",), {}, 1000),
        ("max_launch_overhead", ("40us",), {}, 40),
        ("max_launch_overhead", ("30%",), {}, 0.3),
        ("max_exposed_comm", ("50us",), {}, 50),
        ("max_exposed_comm", ("10%",), {}, 0.1),
        ("max_exposed_comm", (), {"ms": 1}, 1000),
        ("min_throughput", ("600 TFLOP/s",), {}, 600e12),
        ("min_throughput", (" 950.5GFLOP/s",), {}, 950.5e9),
        ("min_throughput", ("80%",), {}, 0.8),
        ("min_bandwidth", (), {"rate": "3 TB/s"}, 3e12),
        ("min_bandwidth", ("750 MB/s",), {}, 750e6),
        ("max_memcpys", (0,), {"direction": "d2h"}, 0),
        ("max_memcpy_bytes", ("1 MB",), {}, 10**6),
        ("max_peak_memory", ("64 MiB",), {}, 2**26),
        ("max_peak_memory", (), {"size": "0 B"}, 0),
        ("max_memcpy_bytes", (), {"size": "1.5 KB", "direction": "h2d"}, 1500),
        ("max_cuda_time", (), {"us": np.float32(0.5)}, 0.5),
        ("max_cuda_time", ("0us",), {}, 0),
        ("max_launch_overhead", (), {"ms": 2}, 2000),
        ("max_launch_overhead", (" 30 % ",), {}, 0.3),
        ("min_speedup", (1.5,), {"over": eager}, 1.5),
        ("min_speedup", (), {"times": 2, "over": eager}, 2),
        ("not_slower", (), {"than": eager}, 0.02),
        ("not_slower", (), {"than": eager, "by": "5%", "metric": "latency"}, 0.05),
    ],
)
def test_a_well_formed_limit_has_its_bound(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], bound: float
) -> None:
    assert parse_limit(name, args, kwargs).bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "reason"),
    [
        ("max_kernels", (-1,), {}, "negative"),
        ("max_kernels", (True,), {}, "not a whole number"),
        ("max_kernels", (1.5,), {}, "not a whole number"),
        ("max_kernels", ("3",), {}, "not a whole number"),
        ("max_kernels", (), {}, "takes one value"),
        ("max_kernels", (1, 2), {}, "takes one value"),
        ("max_kernels", (1,), {"macth": "x"}, "unknown argument 'macth'"),
        ("min_throughput", ("600 TFLOPS/h",), {}, "'600 TFLOPS/h' is neither above 0 in MFLOP/s"),
        ("min_throughput", ("600 TFLOPS",), {}, "is neither above 0 in MFLOP/s"),
        ("min_throughput", ("3 TB/s",), {}, "is neither above 0 in MFLOP/s"),
        ("min_throughput", ("0 TFLOP/s",), {}, "is neither above 0"),
        ("min_throughput", ("0%",), {}, "is neither above 0"),
        ("min_throughput", ("120%",), {}, "nor up to 100%"),
        ("min_throughput", ("-3 TFLOP/s",), {}, "is not a finite value"),
        ("min_throughput", ("fast",), {}, "is not a rate"),
        ("min_throughput", (600,), {}, "600 has no unit"),
        ("min_throughput", (), {}, "takes one value, got none"),
        ("min_bandwidth", ("600 TFLOP/s",), {}, "is neither above 0 in MB/s"),
        ("min_bandwidth", ("3 Gb/s",), {}, "is neither above 0 in MB/s"),  # bits
        ("max_kernels", (1,), {"match": "("}, "not a regular expression"),
        ("max_kernels", (1,), {"match": 3}, "not a pattern"),
        ("max_cuda_time", (200,), {}, "has no unit"),
        ("max_cuda_time", ("200",), {}, "no known time unit"),
        ("max_cuda_time", ("200 parsec",), {}, "no known time unit"),
        ("max_cuda_time", ("-5us",), {}, "zero or more"),
        ("max_cuda_time", (), {"us": True}, "not a number"),
        ("max_cuda_time", (), {"us": float("nan")}, "finite"),
        ("max_cuda_time", ("1us",), {"us": 1}, "takes one time"),
        ("max_latency", (None,), {}, "has no unit"),
        ("max_launch_overhead", ("130%",), {}, "not a percentage"),
        ("max_memcpys", (0,), {"direction": "up"}, "not one of h2d"),
        ("max_memcpy_bytes", (1_000_000,), {}, "has no unit"),
        ("max_peak_memory", ("64",), {}, "no known size unit"),
        ("expect_kernels", (3,), {}, "not a pattern"),
        ("expect_kernels", ("a",), {"n": 1}, "unknown argument"),
        ("forbid_kernels", (), {}, "at least one pattern"),
        ("forbid_kernels", (...,), {}, "not a pattern"),
        ("forbid_kernels", ("a",), {"match": "b"}, "unknown argument"),
        ("expect_kernels", ("[",), {}, "not a regular expression"),
        ("expect_kernels", (None,), {}, "not a pattern"),
        ("max_kernels", (1,), {"n": 2}, "takes one value"),
        ("max_kernels", (1,), {"match": ""}, "not a pattern"),
        ("max_kernels", (float("nan"),), {}, "not a whole number"),
        ("max_kernels", (None,), {}, "not a whole number"),
        ("max_launches", (-1,), {}, "negative"),
        ("max_launches", (1,), {"match": "x"}, "unknown argument 'match'"),
        ("max_syncs", (False,), {}, "not a whole number"),
        ("max_syncs", (1,), {"direction": "d2h"}, "unknown argument 'direction'"),
        ("max_allocations", ("0",), {}, "not a whole number"),
        ("max_recompiles", (-2,), {}, "negative"),
        ("max_jit_compiles", (), {}, "takes one value, got none"),
        ("max_autotunes", (True,), {}, "not a whole number"),
        ("max_graph_breaks", (-1,), {}, "negative"),
        ("max_cuda_time", (), {}, "takes one time"),
        ("max_cuda_time", (), {"us": 1, "ms": 1}, "takes one time"),
        ("max_cuda_time", (), {"us": -1}, "zero or more"),
        ("max_cuda_time", (), {"ms": float("inf")}, "finite"),
        ("max_cuda_time", (), {"us": "200"}, "not a number"),
        ("max_cuda_time", (), {"s": 1}, "unknown argument 's'"),
        ("max_cuda_time", (True,), {}, "has no unit"),
        ("max_cuda_time", ("30%",), {}, "no known time unit"),
        ("max_latency", ("1us", "2us"), {}, "takes one time"),
        ("max_latency", ("",), {}, "not a time"),
        ("max_launch_overhead", (40,), {}, "has no unit"),
        ("max_launch_overhead", ("-1%",), {}, "zero or more"),
        ("max_launch_overhead", ("30%",), {"us": 1}, "takes one time, got 2"),
        ("max_memcpys", (0,), {"direction": "D2H"}, "not one of h2d"),
        ("max_memcpys", (-1,), {}, "negative"),
        ("max_memcpy_bytes", ("1 MB",), {"direction": "up"}, "not one of h2d"),
        ("max_memcpy_bytes", ("-1 MB",), {}, "zero or more"),
        ("max_memcpy_bytes", ("1 MBit",), {}, "no known size unit"),
        ("max_peak_memory", (True,), {}, "has no unit"),
        ("forbid_kernels", ("a",), {"patterns": "b"}, "unknown argument 'patterns'"),
        ("min_speedup", (1.5,), {}, "over=None is not callable"),
        ("min_speedup", (), {"over": eager}, "expected one number above zero, got none"),
        ("min_speedup", ("fast",), {"over": eager}, "'fast': expected a number above zero"),
        ("min_speedup", (10**400,), {"over": eager}, "expected a number above zero"),
        ("min_speedup", (True,), {"over": eager}, "True: expected a number above zero"),
        ("min_speedup", (2,), {"than": eager}, "unknown argument 'than'"),
        ("min_speedup", (2,), {"over": eager, "metric": "speed"}, "metric='speed' is not one of"),
        ("not_slower", (3,), {}, "takes keyword arguments only"),
        ("not_slower", (), {"than": 3}, "than=3 is not callable"),
        ("not_slower", (), {"than": eager, "by": 0.5}, "by=0.5 has no unit"),
        ("not_slower", (), {"than": eager, "by": "2"}, "by: '2' is no"),
        ("not_slower", (), {"than": eager, "by": "200%"}, "by: '200%' is not a percentage"),
    ],
)
def test_a_malformed_limit_is_refused_with_reason_and_form(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MarkerError, match=reason) as error:
        parse_limit(name, args, kwargs)
    assert KINDS[name].form in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "args", "kwargs"),
    [
        ("max_kernels", 3, (3,), {}),
        ("expect_kernels", ("mm", ..., "gelu"), ("mm", ..., "gelu"), {}),
        ("forbid_kernels", ["mm", "gelu"], ("mm", "gelu"), {}),
        ("max_memcpys", {"n": 0, "direction": "d2h"}, (0,), {"direction": "d2h"}),
        ("max_cuda_time", {"us": 3}, (), {"us": 3}),
    ],
)
def test_a_keyword_takes_one_argument_or_several_as_tuple_or_dict(
    name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert parse_keyword(name, value) == parse_limit(name, args, kwargs)


def test_an_unknown_keyword_is_refused_with_all_that_there_are_and_the_near_one() -> None:
    with pytest.raises(MarkerError) as error:
        parse_keyword("max_kernel", 3)
    assert str(error.value).startswith(
        "unknown limit 'max_kernel' (did you mean max_kernels?); the limits are: max_kernels, max_"
    )


def test_an_unknown_keyword_that_is_near_none_is_not_guessed_at() -> None:
    with pytest.raises(MarkerError) as error:
        parse_keyword("speed", 3)
    assert "meant" not in str(error.value)


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_keyword_that_compares_is_refused_with_the_way_to_compare(name: str) -> None:
    with pytest.raises(MarkerError, match=rf"kernel_profile.compare\(f, g, \*args\).{name}"):
        parse_keyword(name, 1.5)


@pytest.mark.parametrize(
    ("name", "value", "bound", "qualifier"),
    [("min_speedup", 1.5, 1.5, "1.5"), ("not_slower", "5%", 0.05, 'by="5%"')],
)
def test_what_is_asserted_of_a_comparison_is_a_limit(
    name: str, value: Any, bound: float, qualifier: str
) -> None:
    found = parse_assertion(name, value)
    assert (found.name, found.bound, found.qualifier) == (name, bound, qualifier)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "min_speedup",
            True,
            "min_speedup: True: expected a number above zero. Write min_speed",
        ),
        ("min_speedup", 10**400, "expected a number above zero"),
        ("not_slower", 0.5, "not_slower: by=0.5 has no unit. Write not_slower("),
        ("not_slower", "2", "not_slower: by: '2' is not a percentage"),
    ],
)
def test_a_malformed_assertion_is_refused_with_the_right_form(
    name: str, value: Any, words: str
) -> None:
    with pytest.raises(MarkerError) as error:
        parse_assertion(name, value)
    assert words in str(error.value)


def test_limits_of_one_name_are_the_same() -> None:
    assert parse_limit("max_kernels", (1,), {}).key == parse_limit("max_kernels", (9,), {}).key


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("max_kernels", 1, {"match": "gelu"}),
        ("max_memcpys", 1, {"direction": "d2h"}),
    ],
)
def test_limits_with_another_match_or_direction_are_others(
    name: str, value: Any, others: dict[str, Any]
) -> None:
    assert parse_limit(name, (value,), {}).key != parse_limit(name, (value,), others).key


def compared(over: Callable[..., Any], times: float = 1.5, metric: str | None = None) -> Any:
    return parse_limit("min_speedup", (times,), {"over": over, "metric": metric}).key


def test_comparisons_are_the_same_by_reference_and_metric_whatever_they_ask() -> None:
    assert compared(eager, 1.5) == compared(eager, 2.0)
    assert compared(eager) != compared(other)
    assert compared(eager) != compared(eager, metric="latency")


EXAMPLES: dict[str, Any] = {
    "max_kernels": 1,
    "max_launches": 1,
    "max_cuda_time": "1us",
    "max_launch_overhead": "1us",
    "max_latency": "1us",
    "min_throughput": "1 TFLOP/s",
    "min_bandwidth": "1 TB/s",
    "max_exposed_comm": "1us",
    "max_memcpys": 0,
    "max_memcpy_bytes": "1 B",
    "max_syncs": 0,
    "max_peak_memory": "1 B",
    "max_allocations": 0,
    "max_recompiles": 0,
    "max_registers": 128,
    "max_shared_memory": "100 KB",
    "max_spills": 0,
    "max_jit_compiles": 0,
    "max_autotunes": 0,
    "max_graph_breaks": 0,
    "expect_kernels": "mm",
    "forbid_kernels": "mm",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_words_of_an_option_make_the_limit_of_the_marker(name: str) -> None:
    kind = KINDS[name]
    assert kind in JUDGED
    assert kind.words.startswith(f"--{name.replace('_', '-')} ")
    words = [str(EXAMPLES[name])]
    assert parse_words(kind, words) == parse_keyword(name, EXAMPLES[name])


def test_these_are_all_limits_that_there_are() -> None:
    assert set(EXAMPLES) | set(COMPARISONS) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_every_limit_shows_a_form_and_says_what_it_limits(name: str) -> None:
    assert KINDS[name].form.startswith(f"{name}(")
    assert KINDS[name].help


@pytest.mark.parametrize(
    ("need", "limits"),
    [
        ("unprofiled", {"max_latency", "max_launch_overhead"}),
        (
            "device_time",
            {"max_cuda_time", "max_exposed_comm", "max_launch_overhead"}
            | {"min_throughput", "min_bandwidth"},
        ),
        ("work", {"min_throughput", "min_bandwidth"}),
        ("memory", {"max_peak_memory", "max_allocations"}),
        ("binaries", {"max_spills"}),
        (
            "on_cpu",
            {
                *("max_kernels", "max_latency", "max_recompiles", "max_autotunes"),
                *("max_graph_breaks", "expect_kernels", "forbid_kernels"),
            },
        ),
    ],
)
def test_each_limit_knows_what_has_to_be_measured_for_it(need: str, limits: set[str]) -> None:
    each = {name: parse_keyword(name, EXAMPLES[name]) for name in EXAMPLES}
    assert {n for n, one in each.items() if need in one.sources or getattr(one, need, 0)} == limits


def test_an_ellipsis_among_patterns_stands_for_any_run() -> None:
    assert parse_limit("expect_kernels", ("a", ..., "b"), {}).patterns == ("a", None, "b")


def test_a_profile_needs_nothing_for_what_compares() -> None:
    found = parse_limit("min_speedup", (2,), {"over": eager, "metric": "latency"})
    assert not found.sources
    assert not found.device_time


@pytest.mark.parametrize("name", KINDS)
def test_only_comparisons_compare(name: str) -> None:
    if name in COMPARISONS:
        found = parse_assertion(name, 2.0 if name == "min_speedup" else "2%")
    else:
        found = parse_keyword(name, EXAMPLES[name])
    assert found.compares == (name in COMPARISONS)


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("max_kernels", "max_kernels(3)"),
        ("max_cuda_time", 'max_cuda_time("200us")'),
        ("expect_kernels", 'expect_kernels("mm", "gelu", ..., "mm")'),
        ("min_speedup", "min_speedup(1.5, over=eager)"),
        ("not_slower", "not_slower(than=eager)"),
    ],
)
def test_an_example_is_the_first_of_the_forms(name: str, example: str) -> None:
    assert KINDS[name].example == example


def test_limits_and_marks_load_without_anything_heavy() -> None:
    """Set-up looks at every test of every user."""
    code = (
        "import sys, pytest_kernelprof.limits.kinds, pytest_kernelprof.limits.marks;"
        "print([m for m in ('torch', 'numpy', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
