"""Draws docs/html-report.png and docs/html-timeline.png from a run document.

python docs/make_screenshots.py RUN.json     # one with a test that launches more than before

It needs Playwright and Chromium, as the tests in tests/browser do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from pytest_kernelprof.baselines.run_documents import read_whole_run
from pytest_kernelprof.report.html.page import html_of

HERE = Path(__file__).parent


def main(document: str) -> None:
    """Of a run document, whose worst test is the one that is shown."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found)
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        page.set_content(html_of(read_whole_run(document)))
        page.screenshot(path=HERE / "html-report.png")
        page.emulate_media(color_scheme="dark")
        page.locator("table.tests summary").first.click()
        page.locator(".tl").first.screenshot(path=HERE / "html-timeline.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
