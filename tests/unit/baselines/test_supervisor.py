"""Whatever ends the run, its reference ends with all of its processes, and then the folder goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_kernelprof.baselines import supervisor

PACKAGE = str(Path(supervisor.__file__).parents[2])
CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); "
RUN = """
import os, subprocess, sys
sys.path.insert(0, {package!r})
from pytest_kernelprof.baselines import supervisor
kept = supervisor.make_folder({place!r})
inn, out = os.pipe()
code = supervisor.CODE.format(module="pytest_kernelprof.baselines.supervisor")
child = {child!r} + "sys.stdin.read(); " + "time.sleep(60)"
process = subprocess.Popen(
    [sys.executable, "-I", "-S", "-c", code, {package!r}, str(os.getpid()), str(kept.path),
     {place!r} + "/log", str(out), sys.executable, "-c", child],
    pass_fds=[out], start_new_session=True,
)
os.close(out)
print(kept.path, process.pid, flush=True)
if {ends!r} == "terminate":
    sys.stdin.readline()
    process.terminate()
    process.wait()
    kept.let_go()
sys.stdin.read()
"""


def processes_of(folder: Path) -> list[str]:
    """The command lines that name a folder, and of what was started by these."""
    told = subprocess.run(["ps", "-eo", "pid,sid,args"], capture_output=True, text=True, check=True)
    return [line for line in told.stdout.splitlines() if str(folder) in line]


@pytest.mark.parametrize("ends", ["kill", "terminate"])
def test_nothing_is_left(tmp_path: Path, ends: str) -> None:
    code = RUN.format(package=PACKAGE, place=str(tmp_path), child=CHILD, ends=ends)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as run:  # type: ignore
        folder, pid = run.stdout.readline().decode().split()
        log = tmp_path / "log"
        wait_for(lambda: log.exists() and "up" in log.read_text())
        group = children_of(int(pid))
        assert group
        if ends == "kill":
            run.send_signal(signal.SIGKILL)
        else:
            run.stdin.write(b"\n")
            run.stdin.flush()
        wait_for(lambda: not Path(folder).exists())
        wait_for(lambda: not any(map(is_alive, group)))
        run.kill()


def children_of(pid: int) -> list[int]:
    """The process that a supervisor has started, and that one's own."""
    told = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in told.stdout.splitlines()[1:]]
    first = [child for child, parent in pairs if parent == pid]
    return [*first, *(child for child, parent in pairs if parent in first)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(true: object, seconds: float = 20.0) -> None:
    late = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < late
        time.sleep(0.02)


def test_it_ends_as_its_process_does(tmp_path: Path) -> None:
    kept = supervisor.make_folder(str(tmp_path))
    inn, out = os.pipe()
    code = supervisor.CODE.format(module="pytest_kernelprof.baselines.supervisor")
    ours = [PACKAGE, str(os.getpid()), str(kept.path), str(tmp_path / "log"), str(out)]
    command = [sys.executable, "-I", "-S", "-c", code, *ours, sys.executable, "-c"]
    done = subprocess.run([*command, "raise SystemExit(7)"], pass_fds=[out], check=False)
    os.close(out)
    assert os.read(inn, 1) == b""  # it holds no end of the wire
    os.close(inn)
    assert done.returncode == 7
    assert kept.path.exists()
    kept.let_go()


def test_it_is_removed_when_nobody_keeps_it(tmp_path: Path) -> None:
    mine = supervisor.make_folder(str(tmp_path))
    (mine.tree / "file").touch()
    other = supervisor.join_folder(mine.path)
    mine.let_go()
    assert other.tree.exists()
    supervisor.sweep_folders(str(tmp_path))
    assert other.tree.exists()
    other.let_go()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="is gone"):
        supervisor.join_folder(mine.path)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {PACKAGE!r});"
        "from pytest_kernelprof.baselines import supervisor;"
        f"kept = supervisor.make_folder({str(tmp_path)!r});"
        "print(kept.path, flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:  # type: ignore
        path = Path(process.stdout.readline().decode().strip())
        supervisor.sweep_folders(str(tmp_path))
        assert path.exists()
        process.send_signal(signal.SIGKILL)
    supervisor.sweep_folders(str(tmp_path))
    assert not path.exists()


def test_a_folder_that_is_swept_as_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = supervisor.tempfile.mkdtemp
    swept = []

    def make(**options: str) -> str:
        path = made(**options)
        if not swept:
            swept.append(path)
            Path(path).rmdir()
        return path

    monkeypatch.setattr(supervisor.tempfile, "mkdtemp", make)
    folder = supervisor.make_folder(str(tmp_path))
    assert folder.tree.is_dir()
    assert swept != [str(folder.path)]
    folder.let_go()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "kernelprof-against-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kernelprof-against-without-lock").mkdir()
    supervisor.sweep_folders(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3
