"""What Linux shows under /proc, nothing where there is no /proc, and who may profile."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_kernelprof.gpu import procfs
from pytest_kernelprof.gpu.procfs import (
    TELLS_CHILDREN,
    admin_only,
    command_of,
    has_cuda_threads,
    holds_gpu,
    injected_libraries,
    is_privileged,
    is_runnable,
    mapped_files,
    permissions,
    process_of,
    processes_below,
    started_at,
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


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        end = time.monotonic() + 30
        while not command_of(process.pid).startswith("sleep") and time.monotonic() < end:
            time.sleep(0.01)  # until the child has started its program
        yield process.pid
        process.kill()


@pytest.mark.skipif(not TELLS_CHILDREN, reason="this system does not tell of processes")
def test_a_child_that_sleeps_is_known_by_all_that_it_is(child: int) -> None:
    found = process_of(child)
    assert found is not None
    assert (found.parent, found.started) == (os.getpid(), started_at(child))
    assert int(found.started) >= int(started_at(os.getpid())) > 0
    assert found.all_ns >= found.main_ns >= 0  # in ticks of 10 ms, which it may not have used
    own = process_of(os.getpid())
    assert own is not None
    assert own.all_ns >= own.main_ns > 0
    assert processes_below()[child].started == found.started
    assert command_of(child) == "sleep 60"
    assert not holds_gpu(child)
    assert not has_cuda_threads(child)


@pytest.mark.skipif(not TELLS_CHILDREN, reason="this system does not tell of processes")
def test_a_child_of_our_own_is_none_of_the_tests(
    child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "_ours", set())
    procfs.note_ours(child)
    assert child not in processes_below()


def test_a_process_that_is_gone_is_nothing() -> None:
    gone = 2**22 + 1
    assert process_of(gone) is None
    assert (started_at(gone), command_of(gone)) == ("", "")
    assert not is_runnable(gone)


@pytest.mark.skipif(not TELLS_CHILDREN, reason="this system does not tell of processes")
def test_a_thread_that_asks_runs() -> None:
    assert is_runnable(threading.get_native_id())


def test_processes_of_one_system_are_known_by_its_boot_and_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(procfs, "text_of", lambda path: "one boot\n")
    monkeypatch.setattr(procfs, "pid_namespace", lambda: "pid:[1]")
    assert procfs.host_of_processes() == "one boot pid:[1]"
    monkeypatch.setattr(procfs, "pid_namespace", str)
    assert procfs.host_of_processes() == platform.node()
