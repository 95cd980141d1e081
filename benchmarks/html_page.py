"""How large the page of a run is, how long it takes to make, and to be seen in Chromium.

Each page is opened several times, each time in a fresh context, without a network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import met, place, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))
from msgspec.structs import replace
from rounds import kernels_of, many, profile_of, round_of, run_of

from pytest_kernelprof.records.document import Run, Test, bounded
from pytest_kernelprof.report.html.page import html_of

MOST_MB, MOST_LOADED_S, MOST_MAKING_S = 2.0, 1.5, 3.0
_PAINT = """() => new Promise((done) => {
    const told = () => performance.getEntriesByName("first-contentful-paint")[0];
    const wait = () => (told() ? done(told().startTime) : requestAnimationFrame(wait));
    wait();
})"""


def one_of(kernels: int) -> Run:
    """A profile of so many kernels, as a document keeps it, with about 10,000 events."""
    profile = replace(bounded(profile_of(kernels)), timeline=round_of(kernels_of(1_600)))
    return run_of(Test("test_it.py::test_large", (profile,)))


def made(make: Callable[[], Run], into: Path) -> tuple[float, float]:
    """Megabytes, and seconds of the processor."""
    run = make()
    began = time.process_time()
    page = html_of(run)
    took = time.process_time() - began
    into.write_text(page, encoding="utf-8")
    return into.stat().st_size / 1e6, took


@contextmanager
def browser() -> Iterator[Any]:
    """A browser, or None."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if found is None:
        yield None
        return
    arguments = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_playwright() as running:
        started = running.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


def painted(started: Any, path: Path, times: int) -> tuple[float, float]:
    """Medians of seconds until the first paint, and until all is read and the script has run."""
    paints, ends = [], []
    for _ in range(times):
        context = started.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        page = context.new_page()
        page.goto(path.as_uri(), wait_until="load")
        paints.append(page.evaluate(_PAINT) / 1e3)
        timing = "performance.getEntriesByType('navigation')[0].loadEventStart"
        ends.append(page.evaluate(timing) / 1e3)
        context.close()
    return statistics.median(paints), statistics.median(ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=7, help="that each page is opened")
    parser.add_argument("--quick", action="store_true", help="smaller ones")
    options = parser.parse_args()
    print(place("pytest-kernelprof", "jinja2"))
    print()
    scale = 10 if options.quick else 1
    cases: dict[str, Callable[[], Run]] = {
        "1,000 profiles of 20 kernels": lambda: many(1_000 // scale),
        "2,000 profiles of 20 kernels": lambda: many(2_000 // scale),
        "a round of 100,000 kernels": lambda: one_of(100_000 // scale),
    }
    rows, first = [], (0.0, 0.0, 0.0)
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        for name, make in cases.items():
            path = Path(folder) / "run.html"
            size, took = made(make, path)
            paint, end = painted(started, path, options.times) if started else (0.0, 0.0)
            rows.append([name, f"{size:.2f}", f"{took:.2f}", f"{paint:.2f}", f"{end:.2f}"])
            first = first if any(first) else (size, took, end)
    print(table(["page", "MB", "made in CPU s", "first paint s", "loaded s"], rows))
    print()
    if started is None:
        print("no Chromium, or no Playwright: nothing was painted")
    size, took, end = first
    print(f"1,000 profiles: at most {MOST_MB} MB: {met(size <= MOST_MB)}")
    print(f"1,000 profiles: loaded within {MOST_LOADED_S} s: {met(0 < end <= MOST_LOADED_S)}")
    slowest = max(float(row[2]) for row in rows)
    print(f"every page is made within {MOST_MAKING_S} s: {met(slowest <= MOST_MAKING_S)}")


if __name__ == "__main__":
    main()
