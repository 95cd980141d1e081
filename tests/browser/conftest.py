"""A browser for the tests of pages: Debian's Chromium, or another of its kind that is there."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report" / "html"))

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# Of a module, not of the session: while it runs, nothing else in the process can run a loop of
# asyncio. All tests that need it are in one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on the PATH; Debian's package is chromium")
    # Chromium has no sandbox for root.
    arguments = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    arguments += os.environ.get("CHROMEFLAGS", "").split()
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


class Seen:
    """A page that is open, and what happened there that should not."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._size = page.viewport_size
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))

    def set(self, viewport: Any = None, color_scheme: str = "light", permissions: Any = ()) -> None:
        """What an open page can be set to."""
        self.page.set_viewport_size(viewport or self._size)
        self.page.emulate_media(media="null", color_scheme=color_scheme)
        self.page.context.grant_permissions(permissions)

    def clear(self) -> None:
        """As it was before anything was opened in it."""
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        self.page.context.clear_permissions()
        self.errors.clear()
        self.requests.clear()

    def open_all(self) -> None:
        """All details."""
        self.page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")


_SET_LATER = ("viewport", "color_scheme", "permissions")


@pytest.fixture(scope="module")
def idle(browser: Any) -> Iterator[dict[str, list[Seen]]]:
    """Empty pages by the settings of their contexts: each new one is a process, which takes more
    time than most tests. What the page of a run remembers, it remembers in its document alone."""
    yield (pages := {})
    for seen in itertools.chain(*pages.values()):
        seen.page.context.close()


@pytest.fixture
def opened(browser: Any, idle: dict[str, list[Seen]]) -> Iterator[Callable[..., Seen]]:
    """Opens an address, with a context's settings."""
    used: list[tuple[str, Seen]] = []

    def open_(address: str, **settings: Any) -> Seen:
        fixed = {name: one for name, one in settings.items() if name not in _SET_LATER}
        there = idle.setdefault(repr(fixed), [])
        seen = there.pop() if there else Seen(browser.new_context(**fixed).new_page())
        used.append((repr(fixed), seen))
        seen.set(**{name: one for name, one in settings.items() if name in _SET_LATER})
        seen.page.goto(address)
        return seen

    yield open_
    for fixed, seen in used:
        seen.clear()
        idle[fixed].append(seen)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """No line for each request."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which it is served here."""
    folder = tmp_path_factory.mktemp("served")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
