"""Rounds written down as timelines, and runs of profiles that have some: for pictures and pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace
from records import GELU, GEMM, H200, MUL, counted, profile, timed

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import (
    Gaps,
    Kernel,
    Place,
    Profile,
    RoundGaps,
    Timeline,
    TimelineKind,
    Verdict,
)

COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"


@dataclass
class Recording:
    """Gathers the events of a round. Times are microseconds."""

    kind: list[TimelineKind] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    lane: list[str] = field(default_factory=list)
    start_us: list[float] = field(default_factory=list)
    duration_us: list[float] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)

    def add(
        self,
        kind: TimelineKind,
        name: str,
        start: float,
        lasts: float,
        lane: str = "thread 4711",
        correlation: int = 0,
    ) -> None:
        row = (kind, name, lane, start, lasts, correlation)
        columns = (
            *(self.kind, self.name, self.lane, self.start_us, self.duration_us, self.correlation),
        )
        for column, value in zip(columns, row, strict=True):
            column.append(value)  # type: ignore[attr-defined]

    def launch(
        self,
        kernel: str,
        at: float,
        begins: float,
        lasts: float,
        correlation: int,
        *,
        device: int = 0,
        stream: int = 7,
        thread: str = "thread 4711",
        kind: TimelineKind = "kernel",
    ) -> None:
        """A launch call of 4 us, and its kernel."""
        self.add("call", "cudaLaunchKernel", at, 4, thread, correlation)
        lane = f"device {device} stream {stream}"
        self.add(kind, kernel, begins, lasts, lane, correlation)

    def timeline(self, left_out: int = 0) -> Timeline:
        order = sorted(range(len(self.kind)), key=lambda i: self.start_us[i])
        return Timeline(
            tuple(self.kind[i] for i in order),
            tuple(self.name[i] for i in order),
            tuple(self.lane[i] for i in order),
            tuple(self.start_us[i] for i in order),
            tuple(self.duration_us[i] for i in order),
            tuple(self.correlation[i] for i in order),
            left_out,
        )


_STEPS = (
    (GEMM, ("aten::mm", "aten::matmul", "aten::linear"), 50.0),
    (GELU, ("aten::gelu",), 30.0),
    (MUL, ("aten::mul",), 20.0),
    (COPY, ("aten::copy_", "aten::clone"), 9.0),
)


def kernels_of(number: int) -> tuple[Kernel, ...]:
    """So many, of four kinds in turn."""
    found = []
    for i in range(number):
        name, operators, us = _STEPS[i % len(_STEPS)]
        us += 0.1 * (i % 7)
        line = f"reference_mlp.py:{40 + i % 4}"
        found.append(
            Kernel(
                *(name, us, (66, 2, 1), (384, 1, 1), 168, 0, 0, 7),
                *("cudaLaunchKernel", operators, line),
            )
        )
    return tuple(found)


def round_of(kernels: tuple[Kernel, ...], *, late: int = -1) -> Timeline:
    """Each launched by its operators, one after the other.

    Args:
        late: before this one the host does something else for 150 us, so that the device waits.
    """
    made, host, free = Recording(), 0.0, 30.0
    for i, kernel in enumerate(kernels, 1):
        if i == late:
            host = max(host, free) + 150
        for depth, operator in enumerate(reversed(kernel.operators)):
            made.add("operator", operator, host + depth, 14 - 2 * depth)
        launched = host + len(kernel.operators) + 2
        begins = max(free + 1.5, launched + 6)
        made.launch(kernel.name, launched, begins, kernel.duration_us, i, stream=kernel.stream)
        made.add("operator", "aten::view", host + 15, 1)
        free, host = begins + kernel.duration_us, host + 18
    return made.timeline()


def profile_of(number: int, *verdicts: Verdict, late: int = -1, **more: object) -> Profile:
    """So many kernels, with their timeline, twelve rounds of GPU time and of latency."""
    kernels = kernels_of(number)
    us = sum(kernel.duration_us for kernel in kernels)
    spread = [us + 0.3 * i for i in (6, 1, 11, 4, 9, 2, 7, 0, 10, 3, 8, 5)]
    taken = profile(
        kernels,
        [
            timed("cuda_time", spread),
            timed("latency", [us + 20 + i for i in range(12)]),
            timed("launch_overhead", [20 + i for i in range(12)]),
            counted("syncs", 0),
            counted("memcpys", 0),
        ],
        environment=H200,
        verdicts=verdicts,
        gaps=Gaps((RoundGaps(150.0 * (late >= 0), 1.5 * number, 0.0),)),
        place=Place("test_mlp.py", 31),
        **more,
    )
    return replace(taken, timeline=round_of(kernels, late=late))


def kept(limit: str = "max_kernels", metric: str = "kernels", n: float = 20) -> Verdict:
    return Verdict(
        limit=limit, outcome="passed", metric=metric, unit="count", measured=n, allowed=n, rounds=2
    )


def over(measured: float, allowed: float) -> Verdict:
    """A broken max_kernels."""
    return Verdict(
        limit="max_kernels",
        outcome="failed",
        metric="kernels",
        unit="count",
        measured=measured,
        allowed=allowed,
        rounds=2,
        place=Place("test_mlp.py", 31),
    )


def run_of(*tests: Test, **more: object) -> Run:
    versions = {"pytest": "9.2.0", "pytest-kernelprof": "0.1.0"}
    return Run(tests, "2026-11-22T08:50:00Z", versions, **more)  # type: ignore[arg-type]


def many(tests: int, kernels: int = 20) -> Run:
    """So many tests, one in fifty over its limit."""
    good, bad = (
        profile_of(kernels, kept(n=kernels)),
        profile_of(kernels, over(kernels, kernels - 1)),
    )
    return run_of(
        *(
            Test(
                f"tests/ops/test_{i // 20}.py::test_op_{i % 20}[shape{i}-bf16]",
                (bad if i % 50 == 7 else good,),
                outcome="failed" if i % 50 == 7 else "passed",
            )
            for i in range(tests)
        )
    )
