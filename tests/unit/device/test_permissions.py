"""Who may profile, by texts as drivers and kernels write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.device import processes
from pytest_kernelprof.device.processes import admin_only, is_privileged


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RmProfilingAdminOnly: 1\n", True),
        ("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", False),
        ("EnableMSI: 1\n", None),
        ("", None),
    ],
)
def test_the_drivers_parameters(text: str, expected: bool | None) -> None:
    assert admin_only(text) is expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("000001ffffffffff", True),
        ("0000000000200000", True),
        ("0000004000000000", True),
        ("00000000a80425fb", False),
    ],
)
def test_capabilities(held: str, expected: bool) -> None:
    assert is_privileged(f"CapPrm:\tffffffffffffffff\nCapEff:\t{held}\n") is expected
    assert not is_privileged("")


@pytest.mark.parametrize(
    ("parameters", "held", "refused"),
    [
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", True),  # root in a plain container
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", False),
        ("RmProfilingAdminOnly: 0\n", "00000000a80425fb", False),
        ("", "00000000a80425fb", False),
    ],
)
def test_profiling_is_refused_to_who_lacks_the_capability(
    parameters: str,
    held: str,
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, text in (("_PARAMETERS", parameters), ("_STATUS", f"CapEff:\t{held}\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(processes, name, tmp_path / name)
    assert processes.profiling_is_refused() is refused
