"""What follows from a device trace alone: counts, copies, launches and the device's times."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import call, copy, kernel, profile_of, round_of, span
from corpus import NAMES, recorded


def test_kernels_that_overlap_keep_the_device_busy_once(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 500),
        call("cudaLaunchKernel", 10, 1),
        call("cudaLaunchKernel", 11, 2),
        call("cudaLaunchKernel", 12, 3),
        kernel("a", 100, 1, dur=100),
        kernel("b", 150, 2, dur=20, stream=8),
        kernel("c", 240, 3, dur=10),
    )
    assert profile.cuda_time == 130
    assert profile.gpu_busy == 110
    assert profile.gpu_span == 150
    assert profile.gpu_idle == 40


def test_copies_and_memsets_are_busy_time_but_no_cuda_time(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        round_of(0, 0, 500),
        call("cudaMemcpyAsync", 10, 1),
        call("cudaMemsetAsync", 12, 2),
        copy("Memcpy DtoD (Device -> Device)", 50, 1),
        span("gpu_memset", "Memset (Device)", 60, 3, 7, correlation=2),
    )
    assert profile.cuda_time == 0
    assert profile.gpu_busy == 5
    assert (profile.kernels, profile.memsets, profile.launches) == ((), 1, 0)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
    ],
)
def test_a_copy_counts_under_its_direction_alone(tmp_path: Path, name: str, direction: str) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1), copy(name, 20, 1, 1024)
    )
    metrics = profile.metrics
    assert (metrics["memcpys"].value, metrics["memcpy_bytes"].value) == (1, 1024)
    directed = {d: metrics[f"memcpy_bytes_{d}"].value for d in ("h2d", "d2h", "d2d", "p2p")}
    assert directed == {**dict.fromkeys(directed, 0), direction: 1024}


def test_a_graph_launch_of_many_kernels_is_one_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaGraphLaunch", 10, 1),
        kernel("a", 20, 1), kernel("b", 40, 1), kernel("c", 60, 1),
    )  # fmt: skip
    assert (profile.kernel_count, profile.launches) == (3, 1)


def test_a_call_of_any_name_that_has_a_kernel_is_a_launch(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path, round_of(0, 0, 99), call("cudaMemcpyAsync", 10, 1), kernel("copy_kernel", 20, 1)
    )
    assert profile.launches == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_device_is_never_busier_than_its_span(name: str) -> None:
    metrics = recorded(name).metrics
    pairs = zip(metrics["gpu_busy"].rounds, metrics["gpu_span"].rounds, strict=True)
    assert all(busy <= span_us for busy, span_us in pairs)


# Kernels of two streams, and of two branches of a graph, may run at the same time.
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"two_streams", "compiled_graphs"}))
def test_kernels_in_a_row_add_up_to_no_more_than_the_busy_time(name: str) -> None:
    metrics = recorded(name).metrics
    pairs = zip(metrics["cuda_time"].rounds, metrics["gpu_busy"].rounds, strict=True)
    assert all(cuda_time <= busy for cuda_time, busy in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_directions_add_up_to_all_copies(name: str) -> None:
    metrics = recorded(name).metrics
    for base in ("memcpys", "memcpy_bytes"):
        parts = (metrics[f"{base}_{direction}"].value for direction in ("h2d", "d2h", "d2d", "p2p"))
        assert sum(value or 0 for value in parts) == metrics[base].value


@pytest.mark.parametrize("name", ["mlp", "decode", "backward", "graph", "copies", "two_streams"])
def test_device_times_are_ordered_as_their_definitions_say(name: str) -> None:
    profile = recorded(name)
    spans = zip(
        profile.metrics["gpu_busy"].rounds,
        profile.metrics["gpu_span"].rounds,
        profile.metrics["gpu_idle"].rounds,
        strict=True,
    )
    for busy, whole, idle in spans:
        assert 0 < busy <= whole
        assert idle == pytest.approx(whole - busy)
    alone = sum(kernel.duration_us for kernel in profile.kernels)
    assert any(alone == pytest.approx(total) for total in profile.metrics["cuda_time"].rounds)
