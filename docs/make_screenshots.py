"""Draws the pictures of the docs, of a page and of a terminal, from a run document.

python docs/make_screenshots.py RUN.json     # one with a test that launches more than before

It needs Playwright and Chromium, as the tests in tests/browser do.
"""

from __future__ import annotations

import html
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.records.document import Run
from pytest_kernelprof.report.html.page import html_of
from pytest_kernelprof.report.tables import Style
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.run import summary_of

HERE = Path(__file__).parent
_LINES = 24
_TERMINAL = """<style>
body { margin: 0; background: #16181d; }
pre { display: inline-block; margin: 0; padding: 18px 22px; font: 15px/1.4 monospace; }
pre { color: #e6e6e6; }
.bold { font-weight: bold; } .red { color: #ff6b6b; } .yellow { color: #e9b13c; }
.green { color: #35b890; } .light { color: #8b919c; } .cyan { color: #6fc3f2; }
</style><pre>%s</pre>"""


def terminal_of(run: Run) -> str:
    """The first lines of the report in a terminal of 88 columns, as a page."""
    lines = report_lines(summary_of(run), Style(88))[:_LINES]
    spans = (
        "".join(f'<span class="{one.colour}">{html.escape(one.text)}</span>' for one in line)
        for line in lines
    )
    return _TERMINAL % "\n".join(spans)


def main(document: str) -> None:
    """Of a run document, whose worst test is the one that is shown."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found)
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        run = read_run(document, timelines=True)
        page.set_content(terminal_of(run))
        page.locator("pre").screenshot(path=HERE / "terminal-report.png")
        page.set_content(html_of(run))
        page.screenshot(path=HERE / "html-report.png")
        page.emulate_media(color_scheme="dark")
        page.get_by_role("button", name="Show").first.click()
        page.locator(".tests summary").first.click()
        page.locator(".tl").first.screenshot(path=HERE / "html-timeline.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
