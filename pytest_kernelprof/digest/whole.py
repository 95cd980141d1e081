"""All that a run says, in one record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.advice import loose_limits, near_limits, short_kernels
from pytest_kernelprof.digest.base import changes_of
from pytest_kernelprof.digest.findings import endings_of, left_out
from pytest_kernelprof.digest.folding import folded
from pytest_kernelprof.digest.hottest import hottest_kernels
from pytest_kernelprof.digest.records import Digest
from pytest_kernelprof.digest.rows import by_file, rows_of
from pytest_kernelprof.digest.totals import totals_of
from pytest_kernelprof.digest.trust import places_of, trust_of, unjudged_limits
from pytest_kernelprof.digest.verdict import counts_of, open_words, overall_of, sentence_of

if TYPE_CHECKING:
    from pytest_kernelprof.schema.run import Run


def digest_of(run: Run) -> Digest:
    """What a run says. Takes time in proportion to its profiles and their kernels."""
    rows = rows_of(run)
    profiles = [row.profile for row in rows]
    last = [row for row in rows if row.told != "rerun"]  # a test tried again is no second test
    counts, totals = counts_of(rows, run.tests), totals_of(last)
    unjudged = unjudged_limits(run.tests)
    changes = changes_of(run)
    left = open_words(counts, unjudged)
    return Digest(
        counts=counts,
        overall=overall_of(run, counts, unjudged, changes),
        sentence=sentence_of(counts, left, changes),
        open=left,
        rows=rows,
        endings=endings_of(run.tests, rows),
        left_out=left_out(run.tests, rows),
        files=by_file(folded(rows)),
        totals=totals,
        hottest=hottest_kernels(last, totals.gpu_us),
        short=short_kernels(last),
        near=near_limits(last),
        tighten=loose_limits(last),
        unjudged=unjudged,
        trust=trust_of(profiles),
        places=places_of(profiles),
        unfinished=run.unfinished,
    )
