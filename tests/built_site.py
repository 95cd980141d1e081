"""The site of the docs, which is built once for the tests of its pages and of its search."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(folder: Path, site: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def build_ours(site: Path) -> None:
    built = build(ROOT, site, "https://example.invalid/kernelprof")
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
