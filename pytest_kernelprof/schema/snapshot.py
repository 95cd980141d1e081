"""Kernel snapshots: what a test launches, as it is kept in a file, and how a profile differs."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_kernelprof.schema.comparison import KernelChange, MetricDelta

FORMAT: Literal["pytest-kernelprof snapshot"] = "pytest-kernelprof snapshot"
VERSION = 1

COUNTS = (
    *("launches", "syncs", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "memcpys_p2p"),
    *("memcpys_pageable", "memcpy_bytes_h2d", "memcpy_bytes_d2h", "memcpy_bytes_d2d"),
    *("memcpy_bytes_p2p", "would_wait"),
)
"""The exact metrics that are kept beside the kernels. Not memsets, of which healthy traces miss
some; not memory, which depends on what ran before; not compilations, which are cold code."""


class KeptProfile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one profile of a test launches. A misspelt field would allow nothing: it is refused.

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


class KeptTest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a test launches.

    Attributes:
        profiles: in the order in which they were taken.
        made_with: the device and the versions of what it ran on; in a file, none where that is
            what most tests of the file were made with.
    """

    profiles: tuple[KeptProfile, ...]
    made_with: dict[str, str] = {}


TestState = Literal["worse", "not compared", "missing", "changed", "same"]
"""How a test compares with its snapshots; "not compared" where there is more, and a failure would
not be sure."""
TEST_STATES: dict[TestState, str] = {
    "worse": "exceeded",
    "not compared": "not judged",
    "missing": "missing",
    "changed": "outdated",
    "same": "held",
}
"""The words for each, worst first."""


class SnapshotReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a test has to say of its snapshots, for the process that writes and tells.

    Attributes:
        file: the test's, as seen from the root folder where it is below it.
        device: the folder of the snapshots' device. key: of the entry.
        state: how it fared; None where there was nothing to compare. why: of "not compared".
        entry: what would be kept of it, where that is asked for.
        refused: why nothing is to be kept of it.
        accepts: whether the test failed by its snapshot alone, or by having none, and an update
            accepts what it launched.
        elsewhere: the devices, by their folders, that have snapshots of this file where this
            device has none.
        changes: kernels that differ in a test that its snapshot does not fail, the first ten.
    """

    file: str
    device: str
    key: str
    state: TestState | None = None
    why: str = ""
    entry: KeptTest | None = None
    refused: str = ""
    accepts: bool = False
    elsewhere: tuple[str, ...] = ()
    changes: tuple[KernelChange, ...] = ()


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
    looser: tuple[tuple[str, str, tuple[MetricDelta, ...]], ...]
