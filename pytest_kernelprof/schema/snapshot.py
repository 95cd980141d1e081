"""Kernel snapshots: what a test launches, as it is kept in a file, and how a profile differs."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.metrics import Unit

FORMAT: Literal["pytest-kernelprof snapshot"] = "pytest-kernelprof snapshot"
VERSION = 1

COUNTS = (
    *("launches", "syncs", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "memcpys_p2p"),
    *("memcpys_pageable", "memcpy_bytes_h2d", "memcpy_bytes_d2h", "memcpy_bytes_d2d"),
    *("memcpy_bytes_p2p", "would_wait"),
)
"""The exact metrics that are kept beside the kernels. Not memsets, of which healthy traces miss
some; not memory, which depends on what ran before; not compilations, which are cold code."""


class KeptProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one profile of a test launches.

    Attributes:
        label: which of the test's profiles it is; of several with one label, the order tells.
        kernels: in launch order, each with its innermost operator (``name | operator``), and
            ``x12`` for a run of one.
        ordered: whether the order says anything; else it is that of the alphabet.
        counts: exact metrics by name, those of ``COUNTS`` that are not zero; None where it could
            not be had.
        rank: whose it is, where a rank launches something else than the first one; those that
            launch the same have none.
    """

    kernels: tuple[str, ...]
    label: str = ""
    ordered: bool = True
    counts: dict[str, int | None] = {}
    rank: int | None = None


class KeptTest(msgspec.Struct, frozen=True):
    """What a test launches.

    Attributes:
        profiles: in the order in which they were taken.
        made_with: the device and the versions of what it ran on.
    """

    profiles: tuple[KeptProfile, ...]
    made_with: dict[str, str]


State = Literal["held", "changed", "more"]


class LineChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kernel that only one side has.

    Attributes:
        sign: "-" if the snapshot has it, "+" if the profile has.
        kernel: as the snapshot has kernels.
        times: how often.
        source: ``file:line`` of the code that launched it, where known.
        at: where in the profile the first kernel of its change stands, from 1; 0 where that has
            none, or no order.
        lines: as of ``Change``.
    """

    sign: Literal["-", "+"]
    kernel: str
    times: int = 1
    source: str = ""
    at: int = 0
    lines: tuple[str, ...] = ()


class CountChange(msgspec.Struct, frozen=True):
    """An exact metric that is another."""

    metric: str
    unit: Unit
    kept: int
    found: int


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a profile compares with its snapshot.

    Attributes:
        state: "held"; "more" where any count is larger; "changed" where none is, but some are
            smaller or kernels are others: the snapshot is stale.
        kernels: how many there are.
        changes: kernels that only one side has, in launch order. counts: metrics that differ.
        moved: whether the same kernels come in another order.
        other: what of device and software is another, in words.
        unknown: metrics that the snapshot has and the profile could not have.
    """

    state: State
    kernels: int
    changes: tuple[LineChange, ...] = ()
    counts: tuple[CountChange, ...] = ()
    moved: bool = False
    other: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


TestState = Literal["over", "not judged", "missing", "changed", "held"]
"""How a test compares with its snapshots, worst first; "not judged" where there is more, and a
failure would not be sure."""
TEST_STATES: tuple[TestState, ...] = ("over", "not judged", "missing", "changed", "held")


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a test has to say of its snapshots, for the process that writes and tells.

    Attributes:
        test: its node id.
        folder: of the test's file, as seen from the root folder where it is below it.
        file: the test's file. device: the folder of the snapshots' device. key: of the entry.
        state: how it fared; None where there was nothing to compare. why: of "not judged".
        entry: what would be kept of it, where that is asked for.
        refused: why nothing is to be kept of it.
        accepts: whether the test failed by its snapshot alone, or by having none, and an update
            accepts what it launched.
        elsewhere: the devices, by their folders, that have snapshots of this file where this
            device has none.
        changes: kernels that differ in a test that its snapshot does not fail, the first ten.
    """

    test: str
    folder: str
    file: str
    device: str
    key: str
    state: TestState | None = None
    why: str = ""
    entry: KeptTest | None = None
    refused: str = ""
    accepts: bool = False
    elsewhere: tuple[str, ...] = ()
    changes: tuple[LineChange, ...] = ()


class Edited(msgspec.Struct, frozen=True):
    """What an update has made of a file.

    Attributes:
        written: entries that are new or others. same: those that were so before. removed: those
            that are gone.
        looser: of which key and label an entry allows more than before.
    """

    written: int
    same: int
    removed: int
    looser: tuple[tuple[str, str, tuple[CountChange, ...]], ...]
