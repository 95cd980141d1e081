"""The messages of what broke a limit in a run document, also where that was expected."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from msgspec.structs import replace

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.report.failure import failure_text
from pytest_kernelprof.summary import wording


def messages(run: Run) -> Iterator[str]:
    """Of each profile beyond a limit, below the test's name."""
    for test in run.tests:
        for profile in test.profiles:
            if profile.outcome in ("failed", "expected failure"):
                verdicts = (
                    replace(one, outcome="failed") if one.outcome == "expected failure" else one
                    for one in profile.verdicts
                )
                yield f"____ {wording.shortened(test.id)}"
                yield failure_text(Test("", (replace(profile, verdicts=tuple(verdicts)),)))


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(*messages(read_run(path)), sep="\n")
