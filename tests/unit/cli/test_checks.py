"""What is asked of the machine, on texts as drivers and kernels write them, and on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.cli import checks
from pytest_kernelprof.cli.checks import (
    admin_only,
    driver_version,
    injected_libraries,
    look_at_machine,
    may_profile,
)
from pytest_kernelprof.device.inventory import why_no_gpu


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n", "535.104.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            "580.65.06",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44  Sat\n", "590.44"),
        ("", ""),
    ],
)
def test_the_drivers_version(text: str, version: str) -> None:
    assert driver_version(text) == version


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
    assert may_profile(f"CapPrm:\tffffffffffffffff\nCapEff:\t{held}\n") is expected
    assert not may_profile("")


def test_injected_libraries_are_named_once() -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 12 /opt/nsight-systems/lib/libToolsInjection64.so\n"
    other = "7f02-7f03 r-xp 00000000 08:01 13 /usr/lib/libc.so.6\n7f04-7f05 rw-p 0 00:00 0\n"
    assert injected_libraries(line + line + other) == ("libToolsInjection64.so",)


def test_this_machine_answers() -> None:
    machine = look_at_machine()
    assert machine.torch.version
    assert bool(machine.torch.why_no_gpu) is bool(why_no_gpu())
    assert machine.packages["pytest"] == pytest.__version__
    assert machine.temp_error == ""
    assert machine.temp_folder
    if why_no_gpu():
        assert machine.canary.state == "no gpu"
        assert machine.canary_after_cpu is None


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
        monkeypatch.setattr(checks, name, tmp_path / name)
    assert checks.profiling_is_refused() is refused


def test_a_process_that_dies_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = checks._ask("no such question")  # type: ignore[arg-type]
    assert answer == "the process that asked ended with status 1: KeyError: 'no such question'"
    monkeypatch.setattr(checks, "_PATIENCE_S", 0.01)
    assert checks._ask("torch") == "no answer within 0 s"


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    folder, error, free = checks._temp_folder()
    assert folder == "/proc/nowhere"
    assert error
    assert free is None
