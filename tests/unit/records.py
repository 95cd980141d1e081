"""Profiles written down as records, without a trace: what limits and reports are told of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_kernelprof.analysis.collectives import with_waiting
from pytest_kernelprof.comparison.judge import status_of, verdict_of
from pytest_kernelprof.records.comparison import Paired, ProfileComparison, RunComparison
from pytest_kernelprof.records.document import ComparedCallable, Comparison, Run, Test
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Collective, Kernel, Metric, Place, Profile, Verdict
from pytest_kernelprof.records.recording import Conditions, Environment, Integrity
from pytest_kernelprof.report.failure import failure_text
from pytest_kernelprof.stats.intervals import median_interval

H200 = Environment(
    "cuda", "NVIDIA H200", "sm_90", {"torch": "2.11.0+cu130", "triton": "3.6.0", "python": "3.13"}
)
CPU = Environment("cpu", "CPU (x86_64)", versions={"torch": "2.11.0+cu130"})

MIXED = (6, 1, 11, 4, 9, 2, 7, 0, 10, 3, 8, 5)
"""The numbers below 12 as independent rounds would have them: neighbours are not alike."""


def kernel(name: str, *operators: str, us: float = 10.0, source: str = "") -> Kernel:
    return Kernel(
        name, us, (1, 1, 1), (128, 1, 1), 32, 0, 0, 7, "cudaLaunchKernel", operators, source
    )


def counted(name: str, *rounds: float, why: str = "") -> Metric:
    """A count: its largest round."""
    spec = METRICS[name]
    return Metric(name, spec.kind, spec.unit, rounds=rounds, value=max(rounds), why=why)


def timed(name: str, rounds: Sequence[float], why: str = "") -> Metric:
    """A time: the median, with its interval."""
    spec, values = METRICS[name], tuple(map(float, rounds))
    found = median_interval(values)
    if found is None:
        median = statistics.median(values)
        return Metric(name, spec.kind, spec.unit, rounds=values, value=median, why=why)
    return Metric(
        name,
        spec.kind,
        spec.unit,
        rounds=values,
        value=found.median,
        low=found.low,
        high=found.high,
        why=why,
        block=found.block,
    )


def around(name: str, us: float, why: str = "") -> Metric:
    """A time of twelve rounds from ``us`` to ``us + 11``: its interval is us + 1 to us + 10."""
    return timed(name, [us + i for i in MIXED], why)


def absent(name: str, why: str = "not measured: nobody asked") -> Metric:
    spec = METRICS[name]
    return Metric(name, spec.kind, spec.unit, why=why)


def profile(
    kernels: Sequence[Kernel] = (),
    metrics: Sequence[Metric] = (),
    *,
    environment: Environment = H200,
    second_look: Sequence[Metric] = (),
    **more: Any,
) -> Profile:
    """A complete profile of two rounds; metrics that are not given were not measured."""
    counts = {"kernels": len(kernels), "launches": len(kernels)}
    matched = 2 * len(kernels)
    known: Mapping[str, Metric] = {
        **{name: absent(name) for name in METRICS},
        **{name: counted(name, count, count) for name, count in counts.items()},
        **{metric.name: metric for metric in metrics},
    }
    more.setdefault("integrity", Integrity(launches=matched, matched=matched))
    return Profile(
        environment=environment,
        metrics=dict(known),
        rounds=more.pop("rounds", 2),
        kernels=tuple(kernels),
        second_look={metric.name: metric for metric in second_look},
        **more,
    )


GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>(int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
LINEAR = ("aten::mm", "aten::matmul", "aten::linear")

MLP = (
    kernel(GEMM, *LINEAR),
    kernel(GELU, "aten::gelu"),
    kernel(GEMM, *LINEAR),
    kernel(MUL, "aten::mul"),
    kernel(GEMM, *LINEAR),
)
"""The kernels of a gated MLP."""


def mlp(*metrics: Metric, **more: Any) -> Profile:
    return profile(MLP, metrics, **more)


def calls_of(n: int, *metrics: Metric, **more: Any) -> Profile:
    """Of so many equal kernels."""
    return profile([kernel("gelu", "aten::gelu")] * n, metrics, **more)


def talking(us: float, *, own_us: float = 100.0, kernels: int = 0, **more: Any) -> Profile:
    """Of one rank: a matrix product, more kernels, then an all-reduce that takes so long."""
    met = Collective(
        kernel=kernels + 1,
        operation="allreduce",
        group="0",
        size=2,
        ranks=(0, 1),
        bytes=4_000_000,
        rounds_us=(us,),
    )
    times = [
        timed("cuda_time", [own_us]),
        timed("comm_time", [us]),
        timed("exposed_comm_time", [us / 2]),
        timed("gpu_busy", [own_us + us]),
    ]
    ran = (kernel(GEMM, *LINEAR), *[kernel(MUL, "aten::mul")] * kernels)
    reduces = kernel(ALL_REDUCE, "nccl:all_reduce", "c10d::allreduce_", us=us, source="ddp.py:8")
    return profile((*ran, reduces), times, collectives=(met,), **more)


def gathered(profiles: Sequence[Profile]) -> Profile:
    """The profile of the lowest rank with those of the others, as a run has it."""
    first, *others = with_waiting(sorted(profiles, key=lambda one: one.rank or 0))
    return replace(first, other_ranks=tuple(others))


def of_ranks(*profiles: Profile) -> Profile:
    """The same call on several ranks, from 0."""
    return gathered([replace(one, rank=rank) for rank, one in enumerate(profiles)])


SLOW = (talking(80.0), talking(20.0, own_us=160.0, kernels=1))
"""Two ranks; the second launches a kernel more, and is waited for."""


def comparison(
    *callables: ComparedCallable,
    metric: str = "cuda_time",
    pairs: int = 12,
    environment: Environment = H200,
    conditions: tuple[Conditions, ...] = (),
    verdicts: tuple[Verdict, ...] = (),
) -> Comparison:
    """Of ``fused``, 1.203 times as fast, with ``eager``, unless others are given."""
    faster = Paired(ratio=1 / 1.203, low=1 / 1.215, high=1 / 1.19)
    usual = (
        ComparedCallable("fused", 1, 100.0, 99.0, 101.0, faster),
        ComparedCallable("eager", 3, 120.3, 119.0, 121.0),
    )
    return Comparison(
        *(metric, "eager", callables or usual, pairs, environment),
        conditions=conditions,
        verdicts=verdicts,
    )


def held_to(taken: Profile, *found: ProfileComparison) -> Profile:
    """The profile with a verdict by each of these baselines; whatever is worse fails."""
    verdicts = [
        verdict_of(one, taken, *(("failed",) if one.change == "worse" else status_of(one, taken)))
        for one in found
    ]
    return replace(taken, verdicts=(*taken.verdicts, *verdicts))


def run_compared(*found: ProfileComparison, name: str = "old.json", **base: Any) -> Run:
    """A run of a profile for each of these comparisons; those that are worse fail."""
    source = found[0].source if found else "run"
    tests = [
        Test(
            one.test,
            (replace(held_to(mlp(), one), label=one.label),),
            outcome="failed" if one.fails else "passed",
        )
        for one in found
    ]
    return Run(tuple(tests), baselines=(RunComparison(source=source, name=name, **base),))


def failure_of(*profiles: Profile, base: str = "", test: str = "", at: Place | None = None) -> str:
    """What the failure of a test says of its profiles.

    Args:
        base: the revision that it is compared with, if it is. test: its id, for commands. at: the
            line that has its limits.
    """
    baselines = [RunComparison(source="revision", name=base)] if base else []
    whole = (one for one in profiles if not (one.one_shot and one.label))  # no region
    limits = tuple(verdict.limit for one in whole for verdict in one.verdicts)
    return failure_text(Test(test, profiles, place=at, limits=limits), baselines)
