"""The kernels that take most of the GPU's time, over all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.kernel_groups import groups_of
from pytest_kernelprof.digest.records import HotKernel
from pytest_kernelprof.names.apart import tell_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.digest.records import Row

_MOST_TOLD_APART = 500


def hottest_kernels(
    rows: Sequence[Row], gpu_us: float | None, most: int = 50
) -> tuple[HotKernel, ...]:
    """By time, the largest first; on the CPU, where there is no GPU time, none.

    Args:
        gpu_us: of the run; shares are of it, or of all these kernels where they take longer:
            a profile that is incomplete has kernels, though no GPU time.
        most: how many.
    """
    found: dict[str, tuple[int, float, set[str]]] = {}
    for row in rows:
        if row.profile.environment.kind == "cuda":
            for name, (number, us) in groups_of(row.profile).items():
                calls, total, tests = found.get(name, (0, 0.0, set()))
                tests.add(row.test)
                found[name] = calls + number, total + us, tests
    found.pop("", None)
    whole = max(gpu_us or 0.0, sum(us for _, us, _ in found.values()))
    hottest = sorted(found.items(), key=lambda one: (-one[1][1], one[0]))
    told = tell_apart(name for name, _ in hottest[: max(most, _MOST_TOLD_APART)])
    return tuple(
        HotKernel(told[name], name, calls, us, us / whole if whole else 0.0, len(tests))
        for name, (calls, us, tests) in hottest[:most]
    )
