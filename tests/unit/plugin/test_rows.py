"""What of a test leaves its process: text that any encoder takes, small, and the same on the other
side."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from corpus import NAMES, record
from msgspec.structs import replace
from records import LINEAR, kernel, mlp, profile, timed

from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.plugin.collector import ATTRIBUTE, Collector, why_ended
from pytest_kernelprof.plugin.hooks import pytest_report_teststatus
from pytest_kernelprof.plugin.run_record import (
    LONGEST_NAME,
    MOST_KERNELS,
    MOST_NAMES,
    attach,
    for_tables,
)
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Test, bounded
from pytest_kernelprof.records.profile import Place, Profile, Status
from pytest_kernelprof.summary.kernels import groups_of
from pytest_kernelprof.summary.verdicts import causes_of, explained


def judged(profile: Profile, **limits: Any) -> Profile:
    found = evaluate(profile, [parse_keyword(name, value) for name, value in limits.items()])
    return replace(profile, verdicts=found)


def report_of(
    test: Test, *, outcome: Any = "passed", wasxfail: str | None = None
) -> pytest.TestReport:
    report = pytest.TestReport("t", ("t", 1, "t"), {}, outcome, None, "call")
    if wasxfail is not None:
        report.wasxfail = wasxfail
    attach(report, test, for_tables)
    return report


def row_of(test: Test, reduced: Callable[[Profile], Profile] = for_tables) -> Test:
    report = pytest.TestReport("t", ("t", 1, "t"), {}, "passed", None, "call")
    attach(report, test, reduced)
    return codec.decode(getattr(report, ATTRIBUTE).encode(), Test)


def collected(*reports: pytest.TestReport) -> list[Test]:
    collector = Collector()
    for report in reports:
        collector.pytest_runtest_logreport(report)
    return list(collector.tests())


@pytest.mark.parametrize("name", NAMES)
def test_what_a_report_carries_is_one_string_of_json(name: str) -> None:
    report = report_of(Test("t", (judged(record(name), max_kernels=0, max_cuda_time="1us"),)))
    sent = getattr(report, ATTRIBUTE)
    assert type(sent) is str
    assert json.loads(sent)["id"] == "t"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_on_the_other_side(name: str) -> None:
    test = Test("t", (judged(record(name), max_kernels=0, max_syncs=0),))
    (profile,) = map(explained, test.profiles)
    assert collected(report_of(test)) == [Test("t", (for_tables(profile),))]


def test_it_is_taken_off_the_report_which_pytest_keeps() -> None:
    report = report_of(Test("t", (mlp(),)))
    collected(report)
    assert not hasattr(report, ATTRIBUTE)


def test_a_report_of_a_test_that_took_nothing_is_left_alone() -> None:
    assert collected(pytest.TestReport("t", ("t", 1, "t"), {}, "passed", None, "call")) == []


def test_rounds_stay_behind_and_kernels_are_told_by_name() -> None:
    (profile,) = row_of(Test("t", (judged(record("mlp"), max_kernels=5),))).profiles
    assert profile.kernels == ()
    assert sum(one.count for one in profile.more_kernels) == 5
    assert profile.metrics["kernels"].rounds == ()
    assert profile.kernel_count == 5
    assert profile.outcome == "passed"


def test_of_a_profile_over_its_limit_some_kernels_are_told_one_by_one() -> None:
    long = kernel("k" * 100_000, *[f"aten::op{i}" for i in range(99)], us=1.0)
    many = profile([long] * 100, [timed("cuda_time", [100.0])])
    (found,) = row_of(Test("t", (judged(many, max_kernels=4),))).profiles
    assert len(found.kernels) == MOST_KERNELS
    assert (found.kernels[0].operators[0], found.kernels[0].operators[-1]) == (
        "aten::op0",
        "aten::op98",
    )
    groups = groups_of(found)
    assert {one.name for one in groups} == {"k" * LONGEST_NAME}
    assert sum(one.count for one in groups) == sum(one.duration_us for one in groups) == 100


@pytest.mark.parametrize("reduced", [for_tables, bounded], ids=["tables", "run document"])
def test_a_cause_counts_the_kernels_of_the_whole_profile(
    reduced: Callable[[Profile], Profile],
) -> None:
    kernels = [kernel("first")] * 1_900 + [kernel("other")] * 2_000
    test = Test("t", (judged(profile(kernels), max_kernels=3_000),))
    (found,) = row_of(test, reduced).profiles
    (cause,) = causes_of(found, "failed")
    assert cause.text == "other x2000; first x1900"


def test_of_very_many_names_the_cheapest_are_one_group() -> None:
    kernels = [kernel(f"k{i}", us=float(i)) for i in range(100)]
    (found,) = row_of(Test("t", (profile(kernels),))).profiles
    assert len(found.more_kernels) == MOST_NAMES + 1
    assert found.more_kernels[0].name == "k99"
    assert (found.more_kernels[-1].name, found.more_kernels[-1].count) == ("", 100 - MOST_NAMES)


def test_a_verbose_run_has_the_kernels_of_every_row() -> None:
    assert len(for_tables(mlp(), kernels=True).kernels) == 5


@pytest.mark.parametrize("over", [False, True], ids=["kept", "over"])
def test_a_row_is_a_few_kilobytes_however_much_was_launched(over: bool) -> None:
    names = [
        f"void at::native::vectorized_elementwise_kernel<{i}, Functor>(int)" for i in range(99)
    ]
    kernels = [kernel(name, *LINEAR, source="/home/user/project/model.py:31") for name in names]
    many = profile(kernels * 50, [timed("cuda_time", [100.0])])
    test = Test("t", (judged(many, max_kernels=1 if over else 9_999),))
    assert len(getattr(report_of(test), ATTRIBUTE)) < (24_000 if over else 8_000)


def test_what_could_not_be_had_is_left_out() -> None:
    (profile,) = row_of(Test("t", (record("mlp"),))).profiles
    assert record("mlp").metrics["latency"].value is None
    assert "latency" not in profile.metrics


def test_a_name_with_a_lone_surrogate_becomes_text_that_can_be_sent() -> None:
    place = Place("tests/\udcff.py", 3)
    profile = replace(
        judged(mlp(label="\udcff"), max_kernels={"n": 0, "match": "\udcff"}), place=place
    )
    (found,) = collected(report_of(Test("tests/\udcff.py::test_it", (profile,))))
    assert found.id == "tests/\\udcff.py::test_it"
    assert found.profiles[0].label == "\\udcff"
    assert found.profiles[0].verdicts[0].qualifier == "\\udcff"
    assert found.profiles[0].place == Place("tests/\\udcff.py", 3)


@pytest.mark.parametrize(
    ("limit", "outcome"), [(4, "expected failure"), (5, "passed")], ids=["over", "kept"]
)
def test_of_an_expected_failure_only_what_is_over_becomes_expected(
    limit: int, outcome: Status
) -> None:
    test = Test("t", (judged(mlp(), max_kernels=limit),))
    (found,) = collected(report_of(test, outcome="skipped", wasxfail="known"))
    assert found.profiles[0].outcome == outcome


# How a test ended, which the report of its call does not know yet.


def phase(when: Any, outcome: Any = "passed", **more: Any) -> pytest.TestReport:
    report = pytest.TestReport("t", ("t", 1, "t"), {}, outcome, None, when)
    vars(report).update(more)
    return report


def taken(report: pytest.TestReport) -> pytest.TestReport:
    attach(report, Test("t", (mlp(),)), for_tables)
    return report


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        ([taken(phase("call"))], "passed"),
        ([taken(phase("call", "failed"))], "failed"),
        ([taken(phase("call", "failed", kernelprof_error=True))], "error"),
        ([taken(phase("call", "skipped"))], "skipped"),
        ([taken(phase("call", "skipped", wasxfail=""))], "xfailed"),
        ([taken(phase("call", wasxfail=""))], "passed"),
        ([taken(phase("call", "rerun", kernelprof_error=True))], "rerun"),
        ([taken(phase("call")), phase("teardown", "failed")], "error"),
        ([taken(phase("call", "failed")), phase("teardown", "failed")], "failed"),
        ([phase("call", "failed"), taken(phase("teardown"))], "failed"),
        ([phase("setup"), taken(phase("call", "skipped")), phase("teardown")], "skipped"),
    ],
)
def test_how_a_test_ended_is_told_by_the_worst_of_its_reports(
    reports: list[pytest.TestReport], outcome: str
) -> None:
    assert [test.outcome for test in collected(*reports)] == [outcome]


def test_each_try_of_a_test_has_its_own_end() -> None:
    first = [phase("setup"), taken(phase("call", "rerun"))]
    last = [phase("setup"), taken(phase("call")), phase("teardown")]
    assert [test.outcome for test in collected(*first, *last)] == ["rerun", "passed"]


def test_nothing_is_kept_of_tests_that_took_nothing() -> None:
    collector = Collector()
    for when in ("setup", "call", "teardown"):
        collector.pytest_runtest_logreport(phase(when))
    assert list(collector.tests()) == []


@pytest.mark.parametrize(
    ("outcome", "status"), [("failed", ("error", "E", "ERROR")), ("rerun", None)]
)
def test_an_error_of_ours_is_an_error_but_not_where_it_is_tried_again(
    outcome: str, status: object
) -> None:
    report = phase("call", outcome, kernelprof_error=True)
    assert pytest_report_teststatus(report) == status


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("in test_it.py\nE   KeyError: 1\nE   ValueError: 2  \nbelow", "ValueError: 2"),
        ("could not be read\n  no such file\n\n", "no such file"),
        (("test_it.py", 3, "Skipped: no GPU\nhere"), "Skipped: no GPU"),
        (None, ""),
    ],
)
def test_what_ended_a_collection_is_one_line(shown: Any, why: str) -> None:
    assert why_ended(pytest.CollectReport("test_it.py", "failed", shown, [])) == why
