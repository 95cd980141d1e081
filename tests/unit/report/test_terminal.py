"""The tables at the end of a run, on a terminal that only notes what is written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from records import CPU, MLP, comparison, counted, mlp, profile, timed

from pytest_kernelprof.digest.trust import integrity_line, trust_of
from pytest_kernelprof.report.terminal import (
    unjudged_line,
    write_comparisons,
    write_report,
)
from pytest_kernelprof.schema import run
from pytest_kernelprof.schema.run import (
    OUTCOMES,
    Bound,
    Conditions,
    Integrity,
    Neighbour,
    Profile,
    Verdict,
)


class Terminal:
    """What is used of pytest's."""

    def __init__(self, width: int = 120) -> None:
        self._tw = SimpleNamespace(fullwidth=width)
        self.sections: list[str] = []
        self.lines: list[str] = []
        self.markup: list[dict[str, bool]] = []

    def section(self, title: str) -> None:
        self.sections.append(title)

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)
        self.markup.append(markup)


def written(*tests: run.Test, width: int = 120) -> Any:
    terminal: Any = Terminal(width)
    write_report(terminal, tests)
    return terminal


def rows(terminal: Any) -> list[str]:
    lines = [" ".join(line.split()) for line in terminal.lines]
    return lines[1 : next(i for i, line in enumerate(lines) if line.startswith("on "))]


def judged(outcome: Any) -> Profile:
    return profile(MLP, verdicts=(Verdict(limit="max_kernels", outcome=outcome),))


FULL = mlp(
    counted("syncs", 1),
    counted("memcpys", 2),
    timed("cuda_time", [99.0, 101.0] * 6),
    timed("launch_overhead", [40.0]),
    bound=Bound("overhead", "busy"),
)


def test_a_profile_is_a_row_of_counts_times_bound_and_outcome() -> None:
    assert rows(written(run.Test("a/test_it.py::test_it", (FULL,)))) == [
        "test_it.py::test_it 5 5 1 2 100.0us ±1.0% 40.0us overhead -"
    ]


def test_what_was_not_measured_is_a_dash() -> None:
    assert rows(written(run.Test("test_it.py::test_it", (mlp(),)))) == [
        "test_it.py::test_it 5 5 - - - - - -"
    ]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_told_by_its_own_word(outcome: str) -> None:
    (row,) = rows(written(run.Test("test_it.py::test_it", (judged(outcome),))))
    assert row.endswith(f" {outcome}")


def test_the_worst_come_first() -> None:
    tests = [
        run.Test(f"test_it.py::test_{letter}", (judged(outcome),))
        for letter, outcome in zip("abcdef", reversed(OUTCOMES), strict=True)
    ]
    found = rows(written(run.Test("test_it.py::test_none", (mlp(),)), *tests))
    assert [row.split()[0][-1] for row in found] == ["f", "e", "d", "c", "b", "a", "e"]
    assert found[-1].startswith("test_it.py::test_none")


@pytest.mark.parametrize(
    ("outcome", "colour"),
    [("over", "red"), ("incomplete", "red"), ("undecided", "yellow"), ("kept", "green")],
)
def test_rows_are_coloured_by_their_outcome(outcome: str, colour: str) -> None:
    terminal = written(run.Test("test_it.py::test_it", (judged(outcome),)))
    assert terminal.markup[1] == {colour: True}


@pytest.mark.parametrize(
    ("fared", "ended", "told"),
    [
        ("kept", "passed", "✓ kept"),
        ("kept", "failed", "✗ failed"),
        ("kept", "error", "! error"),
        ("kept", "skipped", "- skipped"),
        ("kept", "xfailed", "x xfailed"),
        ("kept", "rerun", "- rerun"),
        ("over", "failed", "✗ over"),
        ("over", "skipped", "- skipped"),
        ("over", "rerun", "- rerun"),
        ("expected", "xfailed", "x expected"),
        ("incomplete", "error", "! incomplete"),
        ("undecided", "failed", "✗ failed"),
        ("not judged", "skipped", "- skipped"),
    ],
)
def test_a_limit_that_was_kept_is_no_pass_where_the_test_ended_otherwise(
    fared: str, ended: Any, told: str
) -> None:
    (row,) = rows(written(run.Test("test_it.py::test_it", (judged(fared),), outcome=ended)))
    assert row.endswith(f" {told}")


def test_a_profile_without_limits_says_how_its_test_ended() -> None:
    (row,) = rows(written(run.Test("test_it.py::test_it", (mlp(),), outcome="failed")))
    assert row.endswith(" ✗ failed")


def test_beside_the_row_that_failed_the_test_the_others_say_how_they_fared() -> None:
    profiles = (judged("kept"), judged("over"))
    found = rows(written(run.Test("test_it.py::test_it", profiles, outcome="failed")))
    assert [row.rsplit("- ", 1)[-1] for row in found] == ["✗ over", "✓ kept"]


def limits(*outcomes: Any) -> Profile:
    """One limit each, of another name."""
    names = ("max_kernels", "max_syncs", "max_launches", "max_memcpys")
    verdicts = (Verdict(limit=n, outcome=o) for n, o in zip(names, outcomes, strict=False))
    return profile(MLP, verdicts=tuple(verdicts), environment=CPU)


def test_a_row_says_how_many_of_its_limits_were_judged_where_not_all_were() -> None:
    (row,) = rows(written(run.Test("a", (limits("kept", "not judged", "not judged"),))))
    assert row.endswith(" ✓ kept 1 of 3")


@pytest.mark.parametrize(
    ("tests", "line"),
    [
        ([limits("kept", "kept")], ""),
        ([limits("not judged", "not judged")], ""),
        ([limits("kept", "not judged")], "1 of 2 limits judged: max_syncs needs a GPU (t.py::t0)"),
        (
            [limits("kept", "not judged"), limits("kept"), limits("over", "kept", "not judged")],
            "3 of 5 limits judged in 2 tests: max_syncs, max_launches need a GPU",
        ),
    ],
    ids=["all", "none", "one test", "several"],
)
def test_limits_that_need_a_gpu_are_told_beside_those_that_were_judged(
    tests: list[Profile], line: str
) -> None:
    of = [run.Test(f"a/t.py::t{i}", (one, one)) for i, one in enumerate(tests)]
    assert unjudged_line(of) == line


def test_a_comparison_says_what_was_asserted_and_how_its_test_ended() -> None:
    broken = Verdict(
        limit="min_speedup", qualifier="2", outcome="over", unit="times", metric="cuda_time",
        measured=1.2, low=1.1, high=1.3, rounds=12, candidate="fused",
    )  # fmt: skip
    terminal: Any = Terminal()
    test = run.Test("t", (), (comparison(verdicts=(broken,)),), outcome="failed")
    write_comparisons(terminal, [test])
    assert terminal.lines[0] == "t (failed)"
    assert terminal.lines[-1] == (
        "  ✗ over: min_speedup(2): fused over eager, GPU time: 1.200 times as good "
        "(99 % CI 1.100..1.300, 12 pairs)"
    )


def test_profiles_of_one_test_stand_in_their_order() -> None:
    labels = ["profile 10", "profile 2", "", "backward"]
    profiles = tuple(profile(MLP, label=label) for label in labels)
    found = rows(written(run.Test("test_it.py::test_it", profiles)))
    assert [row.partition(" 5 5 ")[0] for row in found] == [
        "test_it.py::test_it",
        "test_it.py::test_it [backward]",
        "test_it.py::test_it [profile 2]",
        "test_it.py::test_it [profile 10]",
    ]


def test_a_slash_in_a_parameter_is_no_folder() -> None:
    (row,) = rows(written(run.Test("a/b/test_it.py::test_it[c/d]", (mlp(),))))
    assert row.startswith("test_it.py::test_it[c/d] ")


def test_each_place_is_named_once() -> None:
    terminal = written(run.Test("a", (mlp(), mlp())), run.Test("b", (profile(environment=CPU),)))
    assert terminal.lines[-3:-1] == [
        "on CPU (x86_64), torch 2.11.0+cu130",
        "on NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    terminal = written(run.Test("test_it.py::test_" + "x" * 300, (FULL,)), width=width)
    assert max(map(len, terminal.lines[:2])) == width


def test_where_nothing_was_profiled_nothing_is_written() -> None:
    terminal = written(run.Test("a", comparisons=(comparison(),)))
    assert (terminal.sections, terminal.lines) == ([], [])


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (mlp(), "1 profile, 0 taken again, 0 incomplete"),
        (mlp(integrity=Integrity(retakes=1)), "1 profile, 1 taken again, 0 incomplete"),
        (mlp(integrity=Integrity(("lost",))), "1 profile, 0 taken again, 1 incomplete"),
        (mlp(integrity=Integrity(cold=("loading",))), "0 incomplete, 1 cold"),
        (mlp(integrity=Integrity(settled=False)), "0 incomplete, 1 cold"),
        (
            mlp(integrity=Integrity(graph_replays="unproven")),
            "0 incomplete, 1 with unproven graph replays",
        ),
        (
            mlp(conditions=Conditions(1, contenders=(Neighbour(7, 9),))),
            "0 incomplete, 1 timed while other processes worked on the GPU",
        ),
        (
            mlp(conditions=Conditions(2, 1, 12)),
            "0 incomplete, 12 rounds discarded, since the GPU throttled",
        ),
        (profile(environment=CPU), "0 incomplete, 1 of CPU operators, which are no kernels"),
    ],
)
def test_one_line_says_how_far_the_profiles_can_be_trusted(of: Profile, words: str) -> None:
    assert integrity_line(trust_of([of])).endswith(words)


def test_several_profiles_are_counted() -> None:
    assert integrity_line(trust_of([mlp(), mlp()])) == "2 profiles, 0 taken again, 0 incomplete"


def test_comparisons_stand_under_the_tests_that_made_them() -> None:
    terminal: Any = Terminal()
    tests = [run.Test("a/test_it.py::test_b[c/d]", comparisons=(comparison(),)), run.Test("x")]
    write_comparisons(terminal, tests)
    assert terminal.sections == ["comparisons"]
    assert terminal.lines[0] == "test_it.py::test_b[c/d]"
    assert terminal.lines[1].startswith("  callable")
    assert len(terminal.lines) == 4


def test_where_nothing_was_compared_nothing_is_written() -> None:
    terminal: Any = Terminal()
    write_comparisons(terminal, [run.Test("x", (mlp(),))])
    assert (terminal.sections, terminal.lines) == ([], [])
