"""The forms of every limit: what is taken, and what is refused with the right form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import KINDS, parse_keyword, parse_limit


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
        ("max_cuda_time", ("200us",), {}, 200),
        ("max_cuda_time", (), {"us": 200}, 200),
        ("max_cuda_time", (), {"ms": 0.2}, 200),
        ("max_latency", ("1ms",), {}, 1000),
        ("max_launch_overhead", ("40us",), {}, 40),
        ("max_launch_overhead", ("30%",), {}, 0.3),
        ("max_memcpys", (0,), {"direction": "d2h"}, 0),
        ("max_memcpy_bytes", ("1 MB",), {}, 10**6),
        ("max_peak_memory", ("64 MiB",), {}, 2**26),
        ("max_peak_memory", (), {"size": "0 B"}, 0),
        ("max_memcpy_bytes", (), {"size": "1.5 KB", "direction": "h2d"}, 1500),
        ("max_cuda_time", (), {"us": np.float32(0.5)}, 0.5),
        ("max_cuda_time", ("0us",), {}, 0),
        ("max_launch_overhead", (), {"ms": 2}, 2000),
        ("max_launch_overhead", (" 30 % ",), {}, 0.3),
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
        ("max_launch_overhead", ("130%",), {}, "no percentage"),
        ("max_memcpys", (0,), {"direction": "up"}, "none of h2d"),
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
        ("max_cuda_time", (), {}, "takes one time"),
        ("max_cuda_time", (), {"us": 1, "ms": 1}, "takes one time"),
        ("max_cuda_time", (), {"us": -1}, "zero or more"),
        ("max_cuda_time", (), {"ms": float("inf")}, "finite"),
        ("max_cuda_time", (), {"us": "200"}, "not a number"),
        ("max_cuda_time", (), {"s": 1}, "takes one time"),
        ("max_cuda_time", (True,), {}, "has no unit"),
        ("max_cuda_time", ("30%",), {}, "no known time unit"),
        ("max_latency", ("1us", "2us"), {}, "takes one time"),
        ("max_latency", ("",), {}, "not a time"),
        ("max_launch_overhead", (40,), {}, "has no unit"),
        ("max_launch_overhead", ("-1%",), {}, "zero or more"),
        ("max_launch_overhead", ("30%",), {"us": 1}, "unknown argument 'us'"),
        ("max_memcpys", (0,), {"direction": "D2H"}, "none of h2d"),
        ("max_memcpys", (-1,), {}, "negative"),
        ("max_memcpy_bytes", ("1 MB",), {"direction": "up"}, "none of h2d"),
        ("max_memcpy_bytes", ("-1 MB",), {}, "zero or more"),
        ("max_memcpy_bytes", ("1 MBit",), {}, "no known size unit"),
        ("max_peak_memory", (True,), {}, "has no unit"),
    ],
)
def test_a_malformed_limit_is_refused_with_reason_and_form(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MarkerError, match=reason) as error:
        parse_limit(name, args, kwargs)
    assert KINDS[name].form in str(error.value)


def test_keywords_take_several_arguments_as_tuple_or_dict() -> None:
    assert parse_keyword("max_kernels", 3) == parse_limit("max_kernels", (3,), {})
    expected = parse_limit("expect_kernels", ("mm", ..., "gelu"), {})
    assert parse_keyword("expect_kernels", ("mm", ..., "gelu")) == expected
    directed = parse_limit("max_memcpys", (0,), {"direction": "d2h"})
    assert parse_keyword("max_memcpys", {"n": 0, "direction": "d2h"}) == directed
    with pytest.raises(MarkerError, match="unknown limit 'max_kernel'; there are: max_kernels"):
        parse_keyword("max_kernel", 3)


def test_limits_are_the_same_by_name_with_match_or_direction() -> None:
    plain, gelu = (parse_limit("max_kernels", (1,), k) for k in ({}, {"match": "gelu"}))
    assert plain.key != gelu.key
    assert plain.key == parse_limit("max_kernels", (9,), {}).key


EXAMPLES: dict[str, Any] = {
    "max_kernels": 1,
    "max_launches": 1,
    "max_cuda_time": "1us",
    "max_launch_overhead": "1us",
    "max_latency": "1us",
    "max_memcpys": 0,
    "max_memcpy_bytes": "1 B",
    "max_syncs": 0,
    "max_peak_memory": "1 B",
    "max_allocations": 0,
    "max_recompiles": 0,
    "expect_kernels": "mm",
    "forbid_kernels": "mm",
}


def test_these_are_all_limits_that_there_are() -> None:
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_every_limit_shows_a_form_and_says_what_it_limits(name: str) -> None:
    assert KINDS[name].form.startswith(f"{name}(")
    assert KINDS[name].help


@pytest.mark.parametrize(
    ("need", "limits"),
    [
        ("host_time", {"max_latency", "max_launch_overhead"}),
        ("device_time", {"max_cuda_time", "max_launch_overhead"}),
        ("memory", {"max_peak_memory", "max_allocations"}),
        (
            "on_cpu",
            {"max_kernels", "max_latency", "max_recompiles", "expect_kernels", "forbid_kernels"},
        ),
    ],
)
def test_each_limit_knows_what_has_to_be_measured_for_it(need: str, limits: set[str]) -> None:
    found = {name for name in EXAMPLES if getattr(parse_keyword(name, EXAMPLES[name]), need)}
    assert found == limits


def test_an_ellipsis_among_patterns_stands_for_any_run() -> None:
    assert parse_limit("expect_kernels", ("a", ..., "b"), {}).patterns == ("a", None, "b")
