"""Who may profile: what the driver allows, and what this process may beyond it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelprof.device.procfs import text_of

_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38


@dataclass(frozen=True, slots=True)
class Permissions:
    """Whether this process may profile, as far as the system tells.

    Attributes:
        admin_only: whether the driver lets only administrators profile; None where unknown.
        privileged: whether this process has CAP_SYS_ADMIN or CAP_PERFMON, and may all the same.
    """

    admin_only: bool | None = None
    privileged: bool = False

    @property
    def refused(self) -> bool:
        """Whether the driver keeps profiling to administrators, and this process is none."""
        return bool(self.admin_only) and not self.privileged


def permissions() -> Permissions:
    """The permissions of this process."""
    return Permissions(admin_only(text_of(_PARAMETERS)), is_privileged(text_of(_STATUS)))


def profiling_is_refused() -> bool:
    """Whether this process is known not to be allowed to profile."""
    return permissions().refused


def admin_only(parameters: str) -> bool | None:
    """Whether the driver's parameters keep profiling to administrators; None without them."""
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", parameters)
    return None if match is None else match[1] != "0"


def is_privileged(status: str) -> bool:
    """Whether ``/proc/self/status`` grants CAP_SYS_ADMIN or CAP_PERFMON."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    held = int(match[1], 16) if match else 0
    return bool(held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1)
