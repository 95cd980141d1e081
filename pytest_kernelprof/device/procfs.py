"""What Linux tells under /proc; on other systems there is nothing to read, which is no error."""

from __future__ import annotations

from pathlib import Path

from pytest_kernelprof.system import Real

_MAPS = Path("/proc/self/maps")


def text_of(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        with Real.file(str(path)) as file:
            return file.readall().decode("utf-8", "replace")
    except OSError:
        return ""


def mapped_files() -> tuple[str, ...]:
    """Paths of the files in this process's memory map, its loaded libraries among them."""
    return files_in(text_of(_MAPS))


def files_in(maps: str) -> tuple[str, ...]:
    """The paths in a memory map, each once, in its order."""
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    return tuple(dict.fromkeys(line[5] for line in lines if len(line) > 5 and "/" in line[5]))
