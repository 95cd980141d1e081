"""What Linux shows under /proc, nothing where there is no /proc, and who may profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.gpu import procfs
from pytest_kernelprof.gpu.procfs import (
    admin_only,
    injected_libraries,
    is_privileged,
    mapped_files,
    permissions,
    text_of,
    tools_of,
)

MAPS = (
    "7f00-7f01 r-xp 00000000 08:01 12 /opt/a tool/lib.so\n"
    "7f01-7f02 rw-p 00001000 08:01 12 /opt/a tool/lib.so\n"
    "7f02-7f03 rw-p 00000000 00:00 0 \n"
    "7f03-7f04 rw-p 00000000 00:00 0 [heap]\n"
    "7f04-7f05 r-xp 00000000 08:01 13 /usr/lib/libc.so.6\n"
)


def test_mapped_files_are_named_once_with_their_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "text_of", {"/proc/self/maps": MAPS}.get)
    assert mapped_files() == ("/opt/a tool/lib.so", "/usr/lib/libc.so.6")


def test_a_system_without_proc_tells_nothing(tmp_path: Path) -> None:
    assert mapped_files(-1) == ()
    assert text_of(tmp_path) == ""


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
        monkeypatch.setattr(procfs, name, tmp_path / name)
    assert permissions().refused is refused


def test_injected_libraries_are_named_once() -> None:
    tool = "/opt/nsight-systems/lib/libToolsInjection64.so"
    assert injected_libraries([tool, tool, "/usr/lib/libc.so.6"]) == ("libToolsInjection64.so",)


def test_a_tool_with_many_variables_is_named_once() -> None:
    names = ["NSYS_PROFILING_SESSION_ID", "NSYS_TARGET", "CUDA_INJECTION64_PATH", "HOME"]
    assert tools_of(names) == ["Nsight Systems", "a library from CUDA_INJECTION64_PATH"]
