"""Other systems than Linux, as far as they can be played here: it loads, and counts on the CPU."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_kernelprof
from pytest_kernelprof.gpu import usage_lock
from pytest_kernelprof.gpu.allocation import gpus_of_machine
from pytest_kernelprof.gpu.usage_lock import lock_by_uuid

ROOT = Path(pytest_kernelprof.__file__).parents[1]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pytest_kernelprof.__path__, "pytest_kernelprof.")
)
# Loaded before the system is played: torch, the standard library, and what plugins of others load
# are made for this one.
BEFORE = """
import contextlib, json, os, sys
import numpy, msgspec, pytest, torch, torch.profiler
with contextlib.suppress(ImportError):
    import platformdirs
from torch.profiler import ProfilerActivity
with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as warm:
    torch.add(torch.ones(1), 1)
"""
# What only Unix has; None makes an import of it fail.
NO_UNIX = """
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_NOFOLLOW", "fork", "getuid", "geteuid", "sched_getaffinity", "uname", "WNOHANG"):
    if hasattr(os, name):
        delattr(os, name)
"""
# Files are opened by many ways, and all are audited. So are folders that are listed.
WATCH = """
opened = []
def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        opened.append(os.fsdecode(arguments[0]))
sys.addaudithook(watch)
"""
USE = """
import importlib
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
from pytest_kernelprof import profile
x = torch.ones(4)
found = profile(torch.add, x, x, device="cpu", rounds=2)
options = ["--kernelprof-device=cpu", "--kernelprof-report", "-p", "no:cacheprovider"]
# Of the system's own output only the console of this one is there.
status = pytest.main([sys.argv[2], "--rootdir", sys.argv[2], "--capture=sys", *options])
"""
ANSWER = """
linux = [path for path in opened if path.startswith(("/proc", "/dev/shm", "/sys/"))]
print()
print(json.dumps([found.kernel_count, found.environment.device, int(status), linux]))
"""
TEST = """
import pytest, torch
@pytest.mark.max_kernels(1)
@pytest.mark.max_latency("10s")
def test_it(kernel_profile):
    kernel_profile(torch.add, torch.ones(4), 1)
"""


def played(code: str, folder: Path, python: str) -> list[Any]:
    """What a process answers that has gone through these lines."""
    (folder / "test_it.py").write_text(TEST)
    done = subprocess.run(
        [python, "-c", code, json.dumps(MODULES), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("platform", ["win32", "darwin", "linux"])
def test_without_unix_all_modules_load_and_the_cpu_is_counted_and_judged(
    platform: str, tmp_path: Path, python: str
) -> None:
    system = f"sys.platform = {platform!r}\n"
    code = BEFORE + NO_UNIX + system + WATCH + USE + ANSWER
    kernels, place, status, linux = played(code, tmp_path, python)
    assert (kernels, status) == (1, 0)
    assert not other_files(linux) if platform == "linux" else not linux
    assert place.startswith("CPU (")


def other_files(linux: list[str]) -> list[str]:
    """Without those that lie in our own folder, which Linux reaches through its open handle."""
    return [path for path in linux if not path.startswith("/proc/self/fd/")]


def test_what_opens_a_file_of_linux_is_noticed(tmp_path: Path, python: str) -> None:
    """Else the test above would hold for nothing."""
    loud = "from pytest_kernelprof.gpu.procfs import mapped_files; mapped_files()\n"
    *_, linux = played(BEFORE + WATCH + loud + USE + ANSWER, tmp_path, python)
    assert "/proc/self/maps" in other_files(linux)


def test_the_lock_needs_no_flags_of_unix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(usage_lock, "TEMPORARY_FOLDER", str(tmp_path))
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    with lock_by_uuid("a-uuid", 1.0, "a test"):
        (note,) = (tmp_path / "kernelprof-locks").glob("*.notes")
        assert json.loads(note.read_text())["who"] == "a test"


def test_a_mac_has_no_gpus_to_spread_workers_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_kernelprof.gpu import nvml

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: pytest.fail("NVML was asked"))
    assert gpus_of_machine() == ()
