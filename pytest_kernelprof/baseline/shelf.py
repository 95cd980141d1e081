"""Where files of kernel snapshots lie, and how they change: whole, under a lock, never lost."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import TYPE_CHECKING

from pytest_kernelprof.baseline.snapshot_text import from_text, to_text
from pytest_kernelprof.clock import unix_ns
from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.schema.codec import why_no_target, write_atomically
from pytest_kernelprof.schema.json_text import BadTextError
from pytest_kernelprof.system import TEMPORARY_FOLDER, Real
from pytest_kernelprof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.schema.snapshot import KeptTest

    Tests = dict[str, KeptTest]

FOLDER = "__kernelprof__"
_SUFFIX = ".json"
_LEFT_OVER = re.compile(r"\.kernelprof-[0-9a-f]{12}")
_LONGEST_WAIT = 60.0


def device_folder(kind: str, name: str) -> str:
    """The folder of a device: ``NVIDIA-H200``, or ``cpu``."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    return "cpu" if kind == "cpu" else plain or "gpu"


def path_of(folder: str, device: str, file: str) -> str:
    """The file of the snapshots of a test file in ``folder``."""
    return os.path.join(folder, FOLDER, device, file.removesuffix(".py") + _SUFFIX)


def file_checked(name: str, folder: str) -> str:
    """The test file that a file of snapshots of this name is of."""
    stem = name.removesuffix(_SUFFIX)
    return stem if os.path.exists(os.path.join(folder, stem)) and "." in stem else f"{stem}.py"


def devices_of(folder: str) -> dict[str, frozenset[str]]:
    """The devices that have snapshots of tests in a folder, each with the names of its files; one
    look, where there are none."""
    inside = os.path.join(folder, FOLDER)
    try:
        devices = Real.listdir(inside)
    except OSError:
        return {}
    found = {}
    for device in sorted(devices):
        with contextlib.suppress(OSError):
            names = Real.listdir(os.path.join(inside, device))
            found[device] = frozenset(name for name in names if name.endswith(_SUFFIX))
    return found


def read(path: str) -> Tests:
    """The tests of a file; none where there is no file.

    Raises:
        SnapshotError: it cannot be read; it names the file, the line and what to do.
    """
    if why := why_no_target(path):  # a FIFO would hold the run up for ever
        raise SnapshotError(printable(f"{path}: cannot be read ({why})"))
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SnapshotError(
            printable(f"{path}: cannot be read ({error.strerror or error})")
        ) from None
    try:
        return from_text(data)
    except BadTextError as error:
        raise SnapshotError(
            printable(
                f"{path}:{error.line}: {error}; mend it, or take the file from version control, or "
                "delete it and write it anew with pytest --kernelprof-update"
            )
        ) from None


def change(path: str, edit: Callable[[Tests], Tests]) -> tuple[Tests, Tests]:
    """Change a file: what it had and what it has now. Without tests it goes.

    Another run that changes it meanwhile waits. Whoever reads it finds the old one or the new one,
    also if this process is killed.

    Raises:
        SnapshotError: the file that is there cannot be read, and stays as it is; or it cannot be
            written; or another run holds it for a minute.
    """
    from filelock import FileLock, Timeout

    where = os.path.realpath(path)
    owner = getattr(os, "getuid", int)()
    name = f"kernelprof-snapshots-{owner}-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"
    # Beside the file it would be in the user's tree.
    lock = FileLock(os.path.join(TEMPORARY_FOLDER or os.curdir, f"{name}.lock"))
    try:
        with lock.acquire(timeout=_LONGEST_WAIT):
            old = read(path)
            new = edit(old)
            _write(path, new, same=new == old)
    except Timeout:
        why = f"another run has held it for {_LONGEST_WAIT:.0f} s"
        raise SnapshotError(printable(f"{path}: cannot be written ({why})")) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise SnapshotError(printable(f"{path}: cannot be written ({why})")) from None
    return old, new


def _write(path: str, tests: Tests, *, same: bool) -> None:
    folder = os.path.dirname(path)
    if same and (tests or not os.path.exists(path)):
        return
    if tests:
        os.makedirs(folder, exist_ok=True)
        _sweep(folder)
        write_atomically(path, to_text(tests))
        return
    with contextlib.suppress(FileNotFoundError):
        Real.unlink(path)
    for empty in (folder, os.path.dirname(folder)):
        with contextlib.suppress(OSError):  # there are others
            Real.rmdir(empty)


def _sweep(folder: str) -> None:
    """Remove what a killed run has left there before it could be moved to its place.

    One that another run writes for another file of this folder just now is young.
    """
    for name in Real.listdir(folder):
        if _LEFT_OVER.fullmatch(name):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if _age(path) > _LONGEST_WAIT:
                    Real.unlink(path)


def _age(path: str) -> float:

    return unix_ns() / 1e9 - Real.lstat(path).st_mtime
