"""Terminal, Markdown and page tell the same numbers, which are those of the records."""

from __future__ import annotations

import html
import re

from records import comparison, counted, kernel, profile, timed

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.report.html.page import html_of
from pytest_kernelprof.report.markdown import markdown_of
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.run import summary_of

FASTER = Verdict(
    limit="is_faster",
    outcome="failed",
    metric="cuda_time",
    unit="times",
    measured=1.203,
    allowed=1.5,
)


def taken(n: int, us: float, allowed: float | None = None) -> Profile:
    verdict = Verdict(
        limit="max_kernels", outcome="failed" if allowed and n > allowed else "passed",
        metric="kernels", unit="count", measured=n, allowed=allowed,
    )  # fmt: skip
    return profile(
        [kernel("gelu", "aten::gelu", us=us / n)] * n,
        [timed("cuda_time", [us]), counted("syncs", 1)],
        verdicts=(verdict,) if allowed else (),
    )


RUN = Run(
    (
        Test("t.py::test_over", (taken(37, 407.0, 31),), outcome="rerun"),
        Test("t.py::test_over", (taken(37, 407.0, 31),), outcome="failed"),
        Test("t.py::test_kept", (taken(11, 143.0, 13), taken(17, 289.0))),
        Test("u.py::test_plain", (taken(19, 361.0),)),
        Test(
            "u.py::test_compared",
            (),
            comparisons=(comparison(verdicts=(FASTER,)),),
            outcome="failed",
        ),
    ),
    commit="abc1234",
)
SENTENCE = "2 of 3 tests break a limit"
KERNELS, TIME = "84 kernels", "1.20ms on the GPU"  # 37 + 11 + 17 + 19, 407 + 143 + 289 + 361


def terminal(run: Run) -> str:
    style = Style(140, "utf-8", 1)
    lines = [plain(line) for line in report_lines(summary_of(run), style)]
    return "\n".join(lines)


def page(run: Run) -> str:
    told = re.sub(r"<(script|style)\b.*?</\1>", "", html_of(run), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", told)))


def test_the_verdict_is_the_same_in_all() -> None:
    assert terminal(RUN).startswith(f"{SENTENCE}; 1 retried.")
    assert markdown_of(RUN).startswith(f"### ❌ kernelprof: {SENTENCE}; 1 retried\n")
    assert SENTENCE in page(RUN)


def test_the_totals_are_the_same_in_all() -> None:
    assert f"{KERNELS}, {TIME}" in terminal(RUN)
    kept = Run(RUN.tests[2:4])
    assert "47 kernels, 793.0us on the GPU" in markdown_of(kept)  # 11 + 17 + 19, 143 + 289 + 361
    assert KERNELS not in markdown_of(RUN)  # where something is wrong, that counts alone
    assert f"{KERNELS}, {TIME}" in page(RUN)


def test_what_is_broken_has_its_two_numbers_in_all() -> None:
    assert "37 > limit 31" in terminal(RUN)
    wrong = "**max_kernels: 37&nbsp;> limit&nbsp;31** in `test_over`"
    assert f"| ❌ | {wrong}<br>`t.py`<br>" in markdown_of(RUN)
    assert "37 > limit 31" in page(RUN)


def test_a_comparison_that_failed_has_its_numbers_in_all() -> None:
    for told in (terminal(RUN), markdown_of(RUN), page(RUN)):
        assert "1.203" in told


def test_the_page_tells_the_last_try_of_a_test_that_was_tried_again() -> None:
    needs_a_look, _, others = page(RUN).partition("All other profiles")
    # Where, its own command, that of all, the row of the last try.
    assert needs_a_look.count("test_over") == 4
    assert others.partition("This run")[0].count("test_over") == 1  # the first try


def test_a_comparison_alone_that_failed_is_not_nothing_to_look_at() -> None:
    told = page(Run(RUN.tests[-2:]))
    assert "is_faster" in told.partition("All other profiles")[0].partition("What needs a look")[2]


def test_what_was_skipped_with_its_limits_is_no_success() -> None:
    skipped = Run((Test("t.py::t", (taken(11, 143.0, 13),), outcome="skipped"),))
    assert markdown_of(skipped).startswith("### kernelprof: No limit applied; 1 skipped\n")
    (first, *_) = report_lines(summary_of(skipped), Style(100, "utf-8"))
    assert [span.colour for span in first] == ["bold"]


def test_without_a_limit_the_page_says_that_nothing_was_judged() -> None:
    told = page(Run(RUN.tests[3:4]))
    assert "No test has a limit, 1 test has a profile" in told
    assert "What needs a look" not in told
