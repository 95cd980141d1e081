"""The search of the docs' site, in a browser without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def test_a_marker_is_found(served: tuple[Path, str], opened: Callable[..., Any]) -> None:
    folder, address = served
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        check=True,
    )
    seen = opened(f"{address}/index.html")
    seen.page.locator(".md-search__input").click()
    seen.page.keyboard.type("max_kernels", delay=20)
    first = seen.page.locator(".md-search-result__item a").first
    first.wait_for()
    assert ".html" in first.get_attribute("href")
    assert [one for one in seen.requests if not one.startswith((address, "data:"))] == []
