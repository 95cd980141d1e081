"""How two profiles differ: kernels by what became of them, and metrics."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.kernels import Kernel
from pytest_kernelprof.schema.metrics import Kind, Unit

ChangeKind = Literal["added", "removed", "renamed", "replaced"]
PaceKind = Literal["slower", "faster", "reconfigured"]


class Change(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One kernel that only one side has, or that another one stands for.

    Attributes:
        kind: "added", "removed"; "renamed" where another variant of its family runs in its place
            (a matrix product with another tile), "replaced" where something else does.
        old, new: the kernels; of a change that repeats, the first.
        old_us, new_us: their durations in microseconds, over all repeats.
        lines: where equal kernels stand next to each other and any of them may be the one that was
            added or removed, the lines of all of them, in the file of the kernel; else empty.
    """

    kind: ChangeKind
    old: Kernel | None = None
    new: Kernel | None = None
    old_us: float = 0.0
    new_us: float = 0.0
    lines: tuple[str, ...] = ()


class Hunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes that stand together.

    Attributes:
        changes: in launch order.
        times: how often they are found so.
        old_at, new_at: where the first of them stand, counted from 1; 0 without an order.
    """

    changes: tuple[Change, ...]
    times: int = 1
    old_at: int = 0
    new_at: int = 0


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Kernels that both sides have, and that take another time.

    Attributes:
        kind: "slower", "faster"; "reconfigured" where grid, block, registers or shared memory are
            others (autotuning, heuristics, other shapes), whatever the time.
        old, new: the first of them.
        times: how many there are.
        old_us, new_us: what all of them take, in microseconds.
    """

    kind: PaceKind
    old: Kernel
    new: Kernel
    times: int
    old_us: float
    new_us: float


class MetricChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric whose value is another; None on the side that could not have it, and why.

    Attributes:
        old_interval, new_interval: bounds at 99 %, where there are some.
    """

    name: str
    kind: Kind
    unit: Unit
    old: float | None = None
    new: float | None = None
    old_interval: tuple[float, float] | None = None
    new_interval: tuple[float, float] | None = None
    why: str = ""


class Beside(msgspec.Struct, frozen=True, gc=False):
    """A kernel on both sides of a diff; None on a side that has it not. Lines as in ``Change``."""

    old: Kernel | None
    new: Kernel | None
    lines: tuple[str, ...] = ()


class ProfileDiff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is another in the second of two profiles.

    Attributes:
        old_kernels, new_kernels: how many there are. old_us, new_us: what they take in all.
        hunks: in launch order. A kernel that both sides have, in whatever order, is in none.
        paces: by the time that they make up, largest first.
        metrics: in the order of the table of metrics.
        ordered: whether both sides have one order of kernels; else they were compared as sets that
            count.
        other: what of device and software is another, in words: times are then no comparison.
        old_steps, new_steps: of traces with the profiler's own steps, how many there are; the
            kernels are those of one of them, the most frequent one.
        problems: what either profile lacks, in words; empty where both are complete.
        what: what was compared: operators where both ran on the CPU.
    """

    old_kernels: int
    new_kernels: int
    old_us: float
    new_us: float
    hunks: tuple[Hunk, ...] = ()
    paces: tuple[Pace, ...] = ()
    metrics: tuple[MetricChange, ...] = ()
    ordered: bool = True
    other: tuple[str, ...] = ()
    old_steps: int = 0
    new_steps: int = 0
    problems: tuple[str, ...] = ()
    what: Literal["kernels", "operators"] = "kernels"

    @property
    def same_kernels(self) -> bool:
        """Whether neither side has a kernel that the other has not."""
        return not self.hunks


class ProfileDiffs(msgspec.Struct, frozen=True):
    """Two recordings process by process, in the order of their files.

    Attributes:
        processes: the diffs of those that both sides have.
        old_processes, new_processes: how many each has.
        schema: the version.
    """

    processes: tuple[ProfileDiff, ...]
    old_processes: int
    new_processes: int
    schema: int = 1
