"""Small git repositories, made on the spot."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")


class Repository:
    """A repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            ["git", *AUTHOR, *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        """Write files by their paths."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: dict[str, str]) -> str:
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=x")
        return self.git("rev-parse", "HEAD")

    def everything(self) -> dict[str, tuple[int, float, str]]:
        return everything(self.folder)


def everything(folder: Path) -> dict[str, tuple[int, float, str]]:
    """Each file below a folder: its mode, when it was written, and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        held = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime, held)
    return found
