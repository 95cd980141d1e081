"""A call on several ranks in reports and failures: a row a rank, a total, who is waited for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, SLOW, failure_of, mlp, of_ranks, talking

from pytest_kernelprof.limits.evaluate import evaluate
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Document, Run, Test, pack, unpack
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.report.html.page import html_of
from pytest_kernelprof.report.kernel_tables import rank_table
from pytest_kernelprof.report.markdown import markdown_of
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import report_lines
from pytest_kernelprof.summary.ranks import ranks_of, waiting_words
from pytest_kernelprof.summary.run import summary_of

TABLE = [
    "rank  kernels  GPU us  comm us  exposed us  comm wait us",
    "0           2   100.0     80.0        40.0          60.0",
    "1           3   160.0     20.0        10.0           0.0",
    "all         5   260.0    100.0        50.0          60.0",
]
STRAGGLER = (
    "Rank 1 comes last to 1 of 1 collectives: rank 0 waits 60.0us for it in allreduce of 4 MB "
    "(nccl:all_reduce in c10d::allreduce_, ddp.py:8)."
)


def judged(profile: Profile, **limits: Any) -> Profile:
    asked = [parse_keyword(name, value) for name, value in limits.items()]
    return replace(profile, verdicts=evaluate(profile, asked))


def run_of(profile: Profile) -> Run:
    """As it is read from a file, where the kernels of ranks that are alike are not."""
    run = Run((Test("t.py::test_step", (profile,)),), "2026-11-22T08:50:00Z", {})
    return unpack(codec.decode(codec.encode(pack(run)), Document))


def test_of_a_time_a_row_a_rank_and_a_total_and_who_is_waited_for() -> None:
    lines = failure_of(judged(of_ranks(*SLOW), max_kernels=2)).splitlines()
    assert lines[:2] == [
        "max_kernels: 3 > limit 2 on rank 1",
        "  only rank 1 launches vectorized_elementwise [mul]",
    ]
    at = lines.index("  kernels of rank 1 (> only on rank 1):")
    assert [line[:3] for line in lines[at + 2 : at + 5]] == ["  1", "> 2", "  3"]
    assert not any(line.strip() in TABLE for line in lines)  # of counts alone
    lines = failure_of(judged(of_ranks(*SLOW), max_exposed_comm="30us")).splitlines()
    assert lines[0].startswith("max_exposed_comm: 40.0us > limit 30.0us on rank 0")
    at = next(i for i, line in enumerate(lines) if line.strip() == TABLE[0])
    assert [line.strip() for line in lines[at : at + 4]] == TABLE
    told = " ".join(line.strip() for line in lines[at + 4 :])
    assert told.startswith(STRAGGLER)


def test_a_failure_names_all_ranks_the_worst_first() -> None:
    profile = judged(of_ranks(*SLOW), max_kernels=1, max_exposed_comm="10%", max_latency="1s")
    first, second, third = failure_of(profile).splitlines()[:3]
    assert first == "max_kernels: 3 > limit 1 on ranks 1, 0"
    assert second == "max_exposed_comm: 40.0us > limit 18.0us on rank 0"
    assert third == "max_latency: incomplete on ranks 0, 1"


def test_the_terminal_has_the_table_below_the_row() -> None:
    digest = summary_of(run_of(judged(of_ranks(*SLOW), max_kernels=2)))
    told = [plain(line) for line in report_lines(digest, Style(100, verbosity=1))]
    assert [one.strip() for one in told if one.strip() in TABLE] == TABLE
    assert told[1:4] == [
        "",
        "✗ t.py: max_kernels: 3 > limit 2 on rank 1 (test_step)",
        "  only rank 1 launches vectorized_elementwise [mul]",
    ]
    assert any("test_step (rank 1)" in one for one in told[3:])
    assert any(one.strip().startswith("Rank 1 comes last to 1 of 1") for one in told)
    assert any("100.0us on the GPU and 80.0us communicating" in one for one in told)


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [
        ({"max_kernels": 9, "max_exposed_comm": "1s"}, ""),
        ({"max_kernels": 2}, "max_kernels: 3&nbsp;> limit&nbsp;2 on rank 1"),
        (
            {"max_exposed_comm": "30us"},
            "max_exposed_comm: 40.0us&nbsp;> limit&nbsp;30.0us on rank 0",
        ),
    ],
    ids=str,
)
def test_markdown_has_it_where_a_time_is_in_question(limits: dict[str, Any], wrong: str) -> None:
    told = markdown_of(run_of(judged(of_ranks(*SLOW), **limits)))
    lines = {one.strip() for one in told.splitlines()}
    assert wrong in told
    assert ("<summary>Kernels and commands of <b>test_step</b></summary>" in told) == bool(wrong)
    is_time = wrong.startswith("max_exposed_comm")
    assert lines & set(TABLE) == (set(TABLE) if is_time else set())
    assert ("Rank 1 comes last to 1 of 1 collectives" in told) == is_time


def test_the_page_has_a_section_for_it() -> None:
    page = html_of(run_of(judged(of_ranks(*SLOW), max_kernels=2)))
    assert "<h3>Ranks</h3>" in page
    assert "Rank 1 comes last to 1 of 1 collectives" in page
    assert "<h3>Ranks</h3>" not in html_of(run_of(judged(mlp(), max_kernels=2)))


def test_the_page_has_the_count_of_the_rank_that_is_over() -> None:
    page = html_of(run_of(judged(of_ranks(*SLOW), max_kernels=2)))
    assert '<b class="x-bad">3\u00a0&gt;\u00a02</b>' in page
    assert "test_step (rank 1)" in page


def test_of_a_file_the_straggler_is_told_with_the_first_ranks_kernels() -> None:
    """Ranks that do the same have no kernels there."""
    (test,) = run_of(of_ranks(talking(20.0), talking(90.0))).tests
    assert not test.profiles[0].other_ranks[0].kernels
    (told,) = waiting_words(ranks_of(test.profiles[0]))
    assert told.startswith("Rank 0 comes last")
    assert "ddp.py:8" in told


@pytest.mark.parametrize("wrong", [{"last": 9}, {"kernel": -5}, {"kernel": 99}, {"rounds_us": ()}])
def test_what_makes_no_sense_in_a_file_is_told_without_it(wrong: dict[str, Any]) -> None:
    first, other = of_ranks(*SLOW).ranks
    (met,) = first.collectives
    odd = replace(first, collectives=(replace(met, **wrong),), other_ranks=(other,))
    digest = summary_of(run_of(judged(odd, max_exposed_comm="1us")))
    told = [plain(line) for line in report_lines(digest, Style(100, verbosity=1))]
    assert any("max_exposed_comm: " in line for line in told)
    assert any(line.endswith("  test") for line in told)


def test_little_waiting_names_nobody() -> None:
    assert list(waiting_words(ranks_of(of_ranks(talking(80.0), talking(84.0))))) == []


def test_why_nobody_can_be_named_is_said() -> None:
    (met,) = SLOW[0].collectives
    elsewhere = replace(SLOW[0], collectives=(replace(met, ranks=(0, 5)),))
    *_, told = waiting_words(ranks_of(of_ranks(elsewhere, talking(20.0))))
    assert told == (
        "It is unknown who waits for whom: rank 5, which takes part in allreduce, is not among "
        "them."
    )


def test_on_the_cpu_it_is_operators() -> None:
    table = rank_table(ranks_of(of_ranks(mlp(environment=CPU), mlp(environment=CPU))))
    assert [line.split() for line in table.lines()] == [
        ["rank", "operators"],
        ["0..1", "5"],
        ["all", "10"],
    ]


def test_one_rank_is_told_as_ever() -> None:
    assert ranks_of(mlp()) == ()
