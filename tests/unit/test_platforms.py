"""Other systems than Linux, as far as they can be played here: it loads, and counts on the CPU."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_kernelprof
from pytest_kernelprof.device import lock
from pytest_kernelprof.device.lock import lock_by_uuid
from pytest_kernelprof.device.workers import gpus_of_machine

Once = Callable[[str, Callable[[Path], None]], Path]

ROOT = Path(pytest_kernelprof.__file__).parents[1]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pytest_kernelprof.__path__, "pytest_kernelprof.")
)
# Loaded before the system is played: torch and the standard library are made for this one.
BEFORE = """
import json, os, sys
import numpy, msgspec, pytest, torch, torch.profiler
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
json.dump([found.kernel_count, found.environment.device, int(status), linux], answer)
"""
TEST = """
import pytest, torch
@pytest.mark.max_kernels(1)
@pytest.mark.max_latency("10s")
def test_it(kernel_profile):
    kernel_profile(torch.add, torch.ones(4), 1)
"""


# Each system is played in a child: what takes long to load is loaded once, before.
PLAY = """
plays, answers = json.loads(sys.argv[3]), {}
for name, code in plays.items():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        answer = os.fdopen(write, "w")
        exec(code)
        answer.close()
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        answers[name] = json.loads(pipe.read() or "null")
    os.waitpid(child, 0)
json.dump(answers, open("answers.json", "w"))
"""
LOUD = "from pytest_kernelprof.device.procfs import mapped_files; mapped_files()\n"
SYSTEMS = ("win32", "darwin", "linux")
PLAYS = {name: f"{NO_UNIX}sys.platform = {name!r}\n{WATCH}{USE}{ANSWER}" for name in SYSTEMS}
PLAYS["loud"] = WATCH + LOUD + USE + ANSWER


def play_all(folder: Path) -> None:
    """Go through all plays, and keep what each answers."""
    (folder / "test_it.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + PLAY, json.dumps(MODULES), str(folder), json.dumps(PLAYS)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def answers(once: Once) -> dict[str, list[Any]]:
    """What each play answers; all are gone through at the first call."""
    found: dict[str, list[Any]] = json.loads(
        (once("platforms", play_all) / "answers.json").read_text()
    )
    return found


@pytest.mark.parametrize("platform", SYSTEMS)
def test_without_unix_all_modules_load_and_the_cpu_is_counted_and_judged(
    platform: str, answers: dict[str, list[Any]]
) -> None:
    kernels, place, status, linux = answers[platform]
    assert (kernels, status) == (1, 0)
    assert not other_files(linux) if platform == "linux" else not linux
    assert place.startswith("CPU (")


def other_files(linux: list[str]) -> list[str]:
    """Without those that lie in our own folder, which Linux reaches through its open handle."""
    return [path for path in linux if not path.startswith("/proc/self/fd/")]


def test_what_opens_a_file_of_linux_is_noticed(answers: dict[str, list[Any]]) -> None:
    """Else the test above would hold for nothing."""
    assert other_files(answers["loud"][-1]) == ["/proc/self/maps"]


def test_the_lock_needs_no_flags_of_unix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lock, "TEMPORARY_FOLDER", str(tmp_path))
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    with lock_by_uuid("a-uuid", 1.0, "a test"):
        (note,) = (tmp_path / "kernelprof-locks").glob("*.holder")
        assert json.loads(note.read_text())["who"] == "a test"


def test_a_mac_has_no_gpus_to_spread_workers_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_kernelprof.device import nvml

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: pytest.fail("NVML was asked"))
    assert gpus_of_machine() == ()
