"""The search of the docs' site, in a browser without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from built_site import build_ours


def test_a_marker_is_found(
    served: tuple[Path, str],
    opened: Callable[..., Any],
    once: Callable[[str, Callable[[Path], None]], Path],
) -> None:
    folder, address = served
    shutil.copytree(once("site", build_ours), folder, dirs_exist_ok=True)
    seen = opened(f"{address}/index.html")
    seen.page.locator(".md-search__input").click()
    seen.page.keyboard.type("max_kernels", delay=20)
    first = seen.page.locator(".md-search-result__item a").first
    first.wait_for()
    assert ".html" in first.get_attribute("href")
    assert [one for one in seen.requests if not one.startswith((address, "data:"))] == []
