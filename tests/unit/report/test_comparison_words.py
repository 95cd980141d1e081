"""Comparisons in words: a headline, a table, and what was asserted."""

from __future__ import annotations

from fnmatch import fnmatchcase as fnmatch
from typing import Any

import msgspec
import pytest
from records import comparison

from pytest_kernelprof.records.comparison import Paired
from pytest_kernelprof.records.document import ComparedCallable
from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.records.recording import Conditions, Neighbour
from pytest_kernelprof.report.failure import comparison_message
from pytest_kernelprof.report.kernel_tables import callable_lines
from pytest_kernelprof.summary.verdicts import comparison_line, headline

CONTENDED = Conditions(blocks=1, contenders=(Neighbour(7, 60),))


def asserted(outcome: Any = "failed", **facts: Any) -> Verdict:
    known: dict[str, Any] = {
        "limit": "min_speedup",
        "qualifier": "1.5",
        "metric": "cuda_time",
        "unit": "times",
        "allowed": 1.5,
        "measured": 1.203,
        "low": 1.19,
        "high": 1.215,
        "rounds": 12,
        **facts,
    }
    return Verdict(outcome=outcome, **known)


HEADLINE = "fused over eager, GPU time: speedup 1.203 (99 % CI 1.190..1.215, 12 pairs)"


def test_a_headline_says_what_over_what_by_what_and_how_sure() -> None:
    assert headline(comparison()) == HEADLINE


@pytest.mark.parametrize(
    ("metric", "words"),
    [("cuda_time", "GPU time"), ("latency", "latency"), ("peak_memory", "peak memory")],
)
def test_a_headline_names_the_metric_as_a_person_says_it(metric: str, words: str) -> None:
    assert headline(comparison(metric=metric)).startswith(f"fused over eager, {words}: ")


def test_a_headline_without_an_interval_says_so() -> None:
    few = msgspec.structs.replace(
        comparison(
            ComparedCallable("a", 1, 1.0, paired=Paired(ratio=1 / 2)),
            ComparedCallable("eager", 1, 2.0),
        ),
        pairs=7,
    )
    assert headline(few).endswith("speedup 2.000 (7 pairs, too few for an interval)")


def test_a_headline_says_which_callable_is_unstable() -> None:
    jumping = ComparedCallable("fused", 3, 1.0, paired=Paired(ratio=1 / 2), unstable=(1, 3))
    words = headline(comparison(jumping, ComparedCallable("eager", 1, 2.0)))
    assert words.endswith("; UNSTABLE: fused launched 1 to 3 kernels a call)")


def test_a_headline_of_several_is_about_the_one_that_is_asked_for() -> None:
    several = comparison(
        ComparedCallable("a", 1, 1.0, paired=Paired(ratio=1 / 2)),
        ComparedCallable("b", 1, 1.0, paired=Paired(ratio=1 / 3)),
        ComparedCallable("eager", 1, 2.0),
    )
    assert headline(several, "b").startswith("b over eager, GPU time: speedup 3.000")


def test_a_callable_that_was_not_compared_has_no_headline() -> None:
    with pytest.raises(ValueError, match="'slow' was not compared, only 'fused', 'eager'"):
        headline(comparison(), "slow")


def test_an_assertion_is_told_with_the_names_of_both() -> None:
    assert comparison_line(comparison(), asserted()) == f"min_speedup(1.5): {HEADLINE}"


def test_an_assertion_is_told_as_it_was_written() -> None:
    verdict = asserted(limit="not_slower", qualifier='by="5%"')
    assert comparison_line(comparison(), verdict) == f'not_slower(by="5%"): {HEADLINE}'


def test_an_assertion_is_told_with_the_pairs_that_it_was_judged_by() -> None:
    line = comparison_line(comparison(), asserted(rounds=48, block=2))
    assert line.endswith("(99 % CI 1.190..1.215, 48 pairs in blocks of 2)")


@pytest.mark.parametrize(
    ("reason", "conditions", "words"),
    [
        ("interval", (), "too close to the limit to call"),
        ("disturbed", (CONTENDED, CONTENDED), "CONTENDED: other processes worked on this GPU (*"),
    ],
    ids=["interval", "disturbed"],
)
def test_an_undecided_assertion_says_why(
    reason: str, conditions: tuple[Conditions, ...], words: str
) -> None:
    told = comparison_line(comparison(conditions=conditions), asserted("undecided", reason=reason))
    assert fnmatch(told, f"min_speedup(1.5): {HEADLINE}: undecided, {words}")
    assert told.count("CONTENDED") == bool(conditions)


def test_an_assertion_that_was_not_judged_says_why() -> None:
    verdict = asserted("not judged", measured=None, why="nothing was handed over")
    assert comparison_line(comparison(), verdict) == "min_speedup(1.5): nothing was handed over"


def rows(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def test_a_table_has_one_line_a_callable() -> None:
    assert rows(callable_lines(comparison())) == [
        "kernels GPU time speedup 99 % CI callable",
        "1 100.0us ±1.0% 1.203 1.190..1.215 fused",
        "3 120.3us ±0.8% reference eager",
    ]


def test_a_table_of_memory_shows_sizes() -> None:
    table = callable_lines(
        comparison(
            ComparedCallable("a", 1, 5e6, 5e6, 5e6, paired=Paired(ratio=1 / 2)),
            ComparedCallable("eager", 1, 1e7),
            metric="peak_memory",
        )
    )
    assert rows(table)[1] == "1 5 MB 2.000 a"


def test_a_table_says_which_callable_is_unstable() -> None:
    jumping = ComparedCallable("fused", 3, 1.0, paired=Paired(ratio=1 / 2), unstable=(1, 3))
    assert callable_lines(comparison(jumping, ComparedCallable("eager", 1, 2.0)))[-1] == (
        "UNSTABLE: fused launched 1 to 3 kernels a call"
    )


def test_a_message_says_what_is_over_then_what_is_undecided_then_all() -> None:
    verdicts = (asserted("undecided", reason="interval"), asserted("passed"), asserted("failed"))
    lines = comparison_message(comparison(verdicts=verdicts)).splitlines()
    assert lines[0] == f"min_speedup(1.5): {HEADLINE}"
    assert lines[1].endswith("undecided, too close to the limit to call")
    assert lines[2].endswith("callable")
    assert lines[5:] == ["  ", "  to do: make the candidate faster, or lower the limit"]
