"""The report at the end of a run, rule by rule, on a terminal that only notes what is written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from records import CPU, GELU, MLP, MUL, counted, failure_of, held_to, kernel, mlp, profile, timed
from terminal_double import Terminal

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import MetricDelta, ProfileComparison
from pytest_kernelprof.records.document import Run, Test, TestOutcome
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import (
    Bound,
    Copy,
    Hit,
    KernelGroup,
    Metric,
    Place,
    Profile,
    Status,
    Verdict,
    Wait,
)
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.tables import Line, Style, plain, width_of
from pytest_kernelprof.report.terminal import (
    beside_words,
    columns_of,
    report_lines,
    write_report,
)
from pytest_kernelprof.summary.run import summary_of
from pytest_kernelprof.summary.verdicts import CELLS, footing


def told(*tests: Test, width: int = 80, **style: Any) -> list[str]:
    lines = report_lines(summary_of(Run(tests, commit="abc1234")), Style(width, **style))
    return [plain(line) for line in lines]


def limit(
    outcome: Status, name: str = "max_kernels", metric: str = "kernels", **facts: Any
) -> Verdict:
    facts.setdefault("unit", "count")
    return Verdict(limit=name, outcome=outcome, metric=metric, **facts)


def kernels_limit(outcome: Status = "passed", measured: int = 5, allowed: int = 5) -> Verdict:
    return limit(outcome, measured=measured, allowed=allowed)


def time_limit(outcome: Status, measured: float, allowed: float, **facts: Any) -> Verdict:
    facts = {"unit": "us", "low": measured - 1, "high": measured + 1, "rounds": 12, **facts}
    return limit(outcome, "max_cuda_time", "cuda_time", measured=measured, allowed=allowed, **facts)


def kept(us: float = 100.0, *metrics: Metric, **more: Any) -> Profile:
    more.setdefault("verdicts", (kernels_limit(),))
    return mlp(timed("cuda_time", [us]), *metrics, **more)


def over(us: float = 50.0, **more: Any) -> Profile:
    more.setdefault("verdicts", (kernels_limit("failed", 5, 4),))
    return mlp(timed("cuda_time", [us]), **more)


def of(name: str, *profiles: Profile, outcome: TestOutcome = "passed", line: int = 0) -> Test:
    """A test; with a line it has all limits there."""
    limits = [one.limit for taken in profiles for one in taken.verdicts if one.of_limit and line]
    place = Place(f"tests/{name.partition('::')[0]}", line) if line else None
    return Test(f"tests/{name}", profiles, outcome=outcome, limits=tuple(limits), place=place)


def rows(lines: Sequence[str]) -> list[str]:
    """What stands between the titles and the totals, each line without needless spaces."""
    begin = next(i for i, line in enumerate(lines) if line.endswith("  test"))
    end = next((i for i, line in enumerate(lines[begin:], begin) if not line), len(lines))
    return [" ".join(line.split()) for line in lines[begin:end]]


# 1, 7 and 8: verdict first, what is listed, signs.


def test_a_healthy_suite() -> None:
    lines = told(
        of("test_mlp.py::test_plain", kept(142.3)),
        of("test_mlp.py::test_gated[4]", kept(938.6)),
        of("test_linear.py::test_bias", kept(56.7)),
        of("test_linear.py::test_no_limit", mlp(timed("cuda_time", [1.0]))),
    )
    assert lines == [
        "3 of 3 tests are within their limits.",
        "",
        "  kernels  GPU us  test",
        "tests/test_mlp.py",
        "✓       5   938.6  test_gated[4]",
        "✓       5   142.3  test_plain",
        "tests/test_linear.py",
        "✓       5    56.7  test_bias",
        "1 more test has no limit: -v lists all",
        "",
        "suite        20 kernels, 1.14ms on the GPU",
        "hottest      12 calls  120.0us  11 %  nvjet 256x128x64 TNT",
        "              4 calls   40.0us   4 %  vectorized_elementwise [gelu]",
        "              4 calls   40.0us   4 %  vectorized_elementwise [mul]",
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0",
        "4 profiles",
    ]


def test_a_suite_in_which_all_that_can_go_wrong_does() -> None:
    lost = mlp(
        verdicts=(limit("incomplete", why="lost"),),
        integrity=Integrity(("17 of 18 launches have their kernel",), retakes=2),
    )
    undecided = kept(
        199.4,
        verdicts=(
            time_limit(
                "undecided", 199.4, 200.0, low=199.1, high=200.3, rounds=96, reason="interval"
            ),
        ),
    )
    kernels = [*MLP[:2], *[kernel(MUL, "aten::mul", source="model/mlp.py:31")] * 2]
    broken = profile(
        kernels,
        [timed("cuda_time", [578.5])],
        verdicts=(kernels_limit("failed", 4, 2),),
        place=Place("test_training.py", 31),
    )
    tests = [
        of("test_well.py::test_kept", kept()),
        of("test_training.py::test_step", broken, outcome="failed", line=30),
        of("test_story.py::test_lost", lost, outcome="error"),
        of("test_rows.py::test_near[gated-bf16]", undecided, line=12),
        of("test_rows.py::test_xfail", kept(), outcome="xfailed"),
    ]
    lines = told(*tests)
    assert lines[:23] == [
        "1 of 5 tests breaks a limit; 1 incomplete; 1 undecided (not failing), 1 expected",
        "failure.",
        "",
        "✗ mlp.py:31: max_kernels: 4 > limit 2 (test_step)",
        "  vectorized_elementwise [mul] x2 at mlp.py:31, launched most often",
        "  nvjet 256x128x64 TNT",
        "  vectorized_elementwise [gelu]",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  rerun: pytest tests/test_training.py::test_step",
        "  if intended, allow max_kernels(4) at test_training.py:30",
        "",
        "! tests/test_story.py: no number: 17 of 18 launches have their kernel, after 3",
        "  tries (test_lost)",
        "  to do: run these tests alone: pytest tests/test_story.py::test_lost",
        "",
        "? test_rows.py:12: max_cuda_time undecided: 199.1..200.3us, limit 200.0us",
        "  (test_near[gated-bf16])",
        "  too close to the limit to call: -0.3 %, 96 rounds",
        "  to do: take more rounds:",
        "    pytest 'tests/test_rows.py::test_near[gated-bf16]' --kernelprof-rounds=192",
        "  if it stays undecided, allow max_cuda_time('210us') (5 % to spare) at",
        "  test_rows.py:12",
        "",
    ]
    assert lines[23:] == [
        "1 more test is fine, 1 expected failure: -v lists all",
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0",
        "5 profiles, 1 retried, 1 incomplete",
    ]
    unfolded = told(*tests, verbosity=1)
    assert unfolded[:23] == lines[:23]
    assert unfolded[23:35] == [
        "  kernels  launches  GPU us  test",
        "tests/test_training.py",
        "✗   4 > 2         4   578.5  test_step",
        "tests/test_story.py",
        "!                            test_lost",
        "tests/test_rows.py",
        "?       5         5   199.4  test_near[gated-bf16]",
        "tests/test_well.py",
        "✓       5         5   100.0  test_kept",
        "tests/test_rows.py",
        "x       5         5   100.0  test_xfail",
        "",
    ]


def test_the_report_is_a_section_with_the_verdict_first() -> None:
    terminal: Any = Terminal(80)
    write_report(terminal, Run((of("a.py::t", kept()),)))
    assert terminal.sections == ["kernel profiles"]
    assert terminal.lines[0] == "1 of 1 test is within its limits."


@pytest.mark.parametrize("style", ["no", "auto", "short"])
def test_below_failures_printed_or_not_all_is_told_but_how_sure_a_time_is(style: str) -> None:
    terminal: Any = Terminal(80)
    terminal.config.getoption = lambda *_: style
    lost = mlp(
        verdicts=(limit("incomplete", why="lost"),),
        integrity=Integrity(("17 of 18 launches have their kernel",)),
    )
    slow = kept(250.0, verdicts=(time_limit("failed", 250.0, 200.0, low=248.0, high=252.0),))
    write_report(
        terminal,
        Run(
            (
                of("a.py::t", over(), outcome="failed", line=7),
                of("a.py::many", came_at(*range(31, 38)), outcome="failed"),
                of("a.py::five", came_at(*range(41, 47)), outcome="failed"),
                of("a.py::slow", slow, outcome="failed"),
                of("b.py::lost", lost, outcome="error"),
            )
        ),
    )
    assert "✗ tests/a.py: max_cuda_time: 250.0us > limit 200.0us (slow)" in terminal.lines
    assert not any("99 % CI" in line for line in terminal.lines)
    assert not any(re.fullmatch(r"  \d+ more", line) for line in terminal.lines)
    at = terminal.lines.index("✗ m.py:41: added kernel: k41 (five)")
    assert terminal.lines[at + 1 : at + 4] == [
        "  + k42 at m.py:42; 4 others",
        "  worse than the revision: kernels 5 -> 11",
        "  to do: remove the added kernels, or fuse them (torch.compile)",
    ]
    for line in (
        "  nvjet 256x128x64 TNT x3 takes 30.0us",
        "  + k32 at m.py:32; 5 others",
        "✗ a.py:7: max_kernels: 5 > limit 4 (t)",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  if intended, allow max_kernels(5) at a.py:7",
    ):
        assert line in terminal.lines


def test_below_failures_of_several_tests_what_is_wrong_with_each_is_told() -> None:
    terminal: Any = Terminal(80)
    terminal.config.getoption = lambda *_: "auto"
    alike = [of(f"a.py::{name}", over_at(7), outcome="failed") for name in "tu"]
    write_report(terminal, Run(tuple(alike)))
    (at,) = (i for i, line in enumerate(terminal.lines) if line.endswith(" (2 tests)"))
    assert terminal.lines[at + 1 : at + 4] == [
        "  vectorized_elementwise [mul] x7",
        "  t, u",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
    ]


def test_where_nothing_was_profiled_nothing_is_written() -> None:
    terminal: Any = Terminal()
    write_report(terminal, Run((Test("a.py::t"),)))
    assert (terminal.sections, terminal.lines) == ([], [])


def test_while_something_is_broken_what_is_kept_is_one_line_which_v_unfolds() -> None:
    tests = [of(f"a.py::t{i}", kept()) for i in range(3)]
    tests.append(of("b.py::bad", over(), outcome="failed"))
    assert "3 more tests are fine: -v lists all" in told(*tests)
    assert len([line for line in told(*tests, verbosity=1) if line.startswith("✓")]) == 3


def test_of_very_many_that_are_kept_the_costliest_are_listed() -> None:
    tests = [of(f"a.py::test_{i}", kept(100.0 + i)) for i in range(60)]
    lines = told(*tests)
    assert len([line for line in lines if line.startswith("✓   ")]) == 50
    assert "10 more tests are fine: -v lists all" in lines


@pytest.mark.parametrize(
    ("fared", "ended", "sign", "letter"),
    [
        ("failed", "failed", "✗", "F"),
        ("passed", "failed", "✗", "F"),
        ("incomplete", "error", "!", "E"),
        ("passed", "error", "!", "E"),
        ("undecided", "passed", "?", "?"),
        ("passed", "passed", "✓", "."),
        ("passed", "xfailed", "x", "x"),
        ("expected failure", "xfailed", "x", "x"),
        ("passed", "skipped", "–", "s"),
        ("failed", "rerun", "–", "s"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp437", "ascii", "no such encoding"])
def test_a_mark_is_a_sign_or_pytests_letter_where_that_cannot_be_said(
    fared: Status, ended: TestOutcome, sign: str, letter: str, encoding: str
) -> None:
    one = of("a.py::t", kept(verdicts=(kernels_limit(fared),)), outcome=ended)
    lines = told(one, verbosity=1, encoding=encoding)
    row = next(line for line in lines if line.endswith(" t"))
    assert row.startswith(f"{sign if encoding == 'utf-8' else letter} ")


def crashed(at: int) -> Test:
    return Test(f"{at}.py::test_{at}", (mlp(),), outcome="failed", why=f"no {at}")


def broken(at: int) -> Test:
    return of(f"{at}.py::test_{at}", over_at(at + 2), outcome="failed")


@pytest.mark.parametrize("one", [crashed, broken])
def test_all_problems_have_rows_with_v_those_that_the_list_does_not_tell_with_their_causes(
    one: Callable[[int], Test],
) -> None:
    tests = [*map(one, range(8)), of("z.py::well", kept())]
    lines = told(*tests)
    listed = [line.rpartition("(")[2][:-1] for line in lines if line.startswith("✗ ")]
    assert len(listed) == 6
    assert not any(line.endswith("  test") for line in lines)
    table = rows(told(*tests, verbosity=1))
    names = [line.split()[-1] for line in table if line.startswith("✗ ")]
    assert sorted(names) == [f"test_{at}" for at in range(8)]
    with_causes = {
        row.split()[-1]
        for row, below in itertools.pairwise(table)
        if row.startswith("✗ ") and not re.match(r"✓ |[\w/]+\.py$", below)
    }
    assert with_causes == set(names) - set(listed)


def test_what_an_encoding_cannot_say_is_escaped() -> None:
    lines = told(of("a.py::test_é[✓→]", kept()), encoding="ascii")
    assert any(line.endswith(r"test_\xe9[\u2713\u2192]") for line in lines)
    assert all(line.isascii() for line in lines)


# 2: numbers left, the name last and whole; which columns give way.


ALL = kept(
    100.0,
    counted("launches", 7),
    counted("syncs", 1),
    counted("memcpys", 2),
    timed("launch_overhead", [40.0]),
    verdicts=(kernels_limit(), time_limit("passed", 100.0, 200.0)),
    bound=Bound("overhead", ""),
)
NAME = "test_" + "x" * 35  # of 40 columns


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (160, "kernels launches GPU us overhead us waits copies bound test"),
        (110, "kernels launches GPU us overhead us waits copies bound test"),
        (100, "kernels launches GPU us overhead us waits copies test"),
        (90, "kernels GPU us overhead us waits copies test"),
        (80, "kernels GPU us overhead us waits test"),
        (73, "kernels GPU us overhead us test"),
        (60, "kernels GPU us test"),
    ],
)
def test_columns_give_way_while_names_have_less_than_40_columns(width: int, titles: str) -> None:
    lines = told(of(f"a.py::{NAME}", ALL), width=width)
    assert rows(lines)[0] == titles
    assert any(line.endswith(NAME) for line in lines)


def test_what_is_broken_gives_way_last_and_is_told_above_always() -> None:
    verdicts = (limit("failed", "max_syncs", "syncs", measured=1, allowed=0),)
    broken = kept(100.0, counted("syncs", 1), verdicts=verdicts)
    wide, narrow = (
        told(of(f"a.py::{NAME}", broken, outcome="failed"), width=width, verbosity=1)
        for width in (80, 60)
    )
    assert "1 > 0" in " ".join(rows(wide))
    assert "1 > 0" not in " ".join(rows(narrow))
    assert narrow[2] == "✗ tests/a.py: max_syncs: 1 > limit 0"


def test_a_long_name_wraps_under_itself_at_its_joints() -> None:
    name = "TestAdaptiveQuadInterp3d::test_conv_matches_iterative[cuda-float32]"
    lines = told(of(f"a.py::{name}", kept()), width=64)
    at = next(i for i, line in enumerate(lines) if "TestAdaptive" in line)
    assert [line[19:] for line in lines[at : at + 2]] == [
        "TestAdaptiveQuadInterp3d::",
        "  test_conv_matches_iterative[cuda-float32]",
    ]


HOSTILE = [
    "test_" + "x" * 100_000,
    "test_" + "a_" * 50_000,
    "test[" + "[" * 200 + "]",
    "Test::" * 60 + "test_it",
    "test_\x1b[31mred\x1b[0m\n\r\t\x00",
    "test_\u202eright to left\u202c",
    "test_😀😀😀[日本語" + "テスト" * 40 + "]",
    "test_e\u0301" * 30,
    "test_\ud800[<script>|`*]",
    "",
    " ",
    "[]",
    "test_it[a b  c" + " d" * 100 + "]",
]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.bulk
def test_no_line_is_wider_than_the_terminal_whatever_tests_are_called(
    name: str, encoding: str
) -> None:
    kernels = [kernel(name, name, us=2.0, source=f"{name}:31")] * 3
    bad = profile(
        kernels,
        [timed("cuda_time", [6.0]), timed("launch_overhead", [80.0]), timed("latency", [96.0])],
        verdicts=(
            kernels_limit("failed", 3, 2),
            limit("failed", "forbid_kernels", "", hits=(Hit(1, name, name),)),
        ),
        bound=Bound("overhead", ""),
        label=name,
    )
    tests = [
        Test(f"{name}/test_a.py::{name}", (bad,), outcome="failed"),
        Test(f"test_b.py::{name}[1]", (kept(),)),
        Test(f"test_b.py::{name}[2]", (kept(),)),
        Test(name, (mlp(),)),
    ]
    for width in (60, 61, 79, 80, 81, 100, 120, 160):
        for line in told(*tests, width=width, encoding=encoding, verbosity=2):
            file = "test_a.py" in line or line.startswith(("unfinished", "test_b"))
            assert width_of(line) <= width or file, line[:200]
            assert line.isprintable()


# 3 and 4: columns that say something, in one unit.


def test_a_column_of_zeros_or_of_what_is_not_known_is_none() -> None:
    lines = told(of("a.py::t", kept(100.0, counted("syncs", 0))), of("a.py::u", kept()))
    assert rows(lines)[0] == "kernels GPU us test"


def test_what_could_not_be_had_is_an_empty_cell() -> None:
    lines = told(of("a.py::t", kept(1.0, counted("syncs", 3))), of("a.py::u", mlp()))
    assert rows(told(of("a.py::u", kept(2.0)), of("a.py::t", kept(1.0, counted("syncs", 3)))))[
        2:
    ] == ["✓ 5 2.0 u", "✓ 5 1.0 3 t"]
    assert lines


@pytest.mark.parametrize(
    ("largest", "title", "cell", "other"),
    [
        (999.0, "GPU us", "999.0", "1.2"),
        (1_234.5, "GPU us", "1234", "1"),
        (99_000.0, "GPU us", "99000", "1"),
        (123_456.0, "GPU ms", "123.46", "0.00"),
    ],
)
def test_a_column_has_one_unit_and_one_number_of_decimals(
    largest: float, title: str, cell: str, other: str
) -> None:
    told_rows = rows(told(of("a.py::t", kept(largest)), of("a.py::u", kept(1.2))))
    assert told_rows[0] == f"kernels {title} test"
    assert told_rows[2:4] == [f"✓ 5 {cell} t", f"✓ 5 {other} u"]


# 5: a broken limit in its cell.


@pytest.mark.parametrize(("number", "is_told"), [(9_999, False), (50_000, True)])
def test_a_row_of_very_many_kernels_says_what_takes_less(number: int, is_told: bool) -> None:
    large = kept(100.0, counted("kernels", number))
    words = "50,000 kernels in a call take long to profile: measure fewer steps, or a part of them"
    assert (words in rows(told(of("a.py::t", large), width=120))) is is_told
    assert (words in footing(large)) is is_told


def test_beside_a_limit_the_cell_has_the_value_of_the_baseline() -> None:
    kernels = MetricDelta(name="kernels", baselines=(3,), current=5, change="worse", judged=True)
    launches = MetricDelta(name="launches", baselines=(3,), current=5, change="worse", judged=True)
    worse = ProfileComparison(
        source="revision", test="t", change="worse", metrics=(kernels, launches)
    )
    both = (kernels_limit("failed", 5, 3), *held_to(mlp(), worse).verdicts)
    test = of("a.py::t", kept(verdicts=both), outcome="failed")
    lines = rows(told(test, verbosity=1))
    assert lines[2] == "✗ 5 > 3 (was 3) 3 -> 5 100.0 t"
    assert not any(line.startswith(("against", "launches")) for line in lines)
    (row,) = summary_of(Run((test,))).rows
    columns = [one.key for one in columns_of([row], verbose=False)]
    assert columns == ["kernels", "cuda_time"]
    assert beside_words(row, columns) == []


@pytest.mark.parametrize(
    ("verdict", "cell"),
    [
        (kernels_limit("failed", 16, 14), "16 > 14"),
        (time_limit("failed", 578.5, 560.0), "578.5 > 560"),
        (time_limit("failed", 560.04, 560.0), "560.04 > 560"),
        (time_limit("failed", 12.0, 0.001), "12.0 > 0.001"),
    ],
)
def test_a_broken_limit_stands_in_its_cell(verdict: Verdict, cell: str) -> None:
    one = kept(verdict.measured or 0, verdicts=(verdict,))
    table = rows(told(of("a.py::t", one, outcome="failed"), verbosity=1))
    assert any(f" {cell} " in line for line in table)


# 6: order and folding; also in test_whole.


def test_parametrisations_fold_with_the_numbers_of_the_slowest() -> None:
    tests = [of(f"a.py::t[{us}]", kept(us)) for us in (104.1, 199.4, 150.0)]
    assert rows(told(*tests))[2:] == ["✓ 5 199.4 t[199.4] and 2 more"]
    unfolded = [one.split()[-1] for one in rows(told(*tests, verbosity=1))]
    assert unfolded[2:] == ["t[199.4]", "t[150.0]", "t[104.1]"]


def test_of_a_suite_without_limits_the_costliest_are_listed_and_the_rest_is_counted() -> None:
    tests = [
        of(f"a.py::test_{name}", mlp(timed("cuda_time", [100.0 + i])))
        for i, name in enumerate("abcdefghijklmno")
    ]
    lines = told(*tests)
    assert lines[0] == "No test has a limit, 15 tests have a profile. The ten that cost the most:"
    assert rows(lines)[2] == "5 114.0 test_o"
    assert len(rows(lines)) == 13
    assert "5 more tests have no limit: -v lists all" in lines


def test_without_limits_there_are_signs_where_a_test_needs_a_look_alone() -> None:
    lost = mlp(integrity=Integrity(("a kernel is lost",)))
    tests = [
        of("a.py::t", mlp(), outcome="failed"), of("b.py::lost", lost), of("c.py::well", mlp()),
    ]  # fmt: skip
    assert not any(line.endswith("  test") for line in told(*tests))
    assert rows(told(*tests, verbosity=1))[1:] == [
        *("tests/b.py", "! lost"),
        *("tests/a.py", "✗ 5 5 t"),
        *("tests/c.py", "5 5 well"),
    ]


def came_at(*lines: int, name: str = "k{}") -> Profile:
    """Worse than main by a kernel of each line."""
    new = [
        kernel(name.format(line), f"aten::op{line}", "aten::linear", source=f"model/m.py:{line}")
        for line in lines
    ]
    found = diff_profiles(profile(MLP), profile([*MLP, *new]))
    more = MetricDelta(
        name="kernels", baselines=(5,), current=5 + len(new), change="worse", judged=True
    )
    worse = ProfileComparison(source="revision", change="worse", kernels=found, metrics=(more,))
    return held_to(profile([*MLP, *new]), worse)


def test_the_place_follows_the_cause_one_thing_a_line_without_its_operators() -> None:
    for width in (80, 100, 120):
        lines = told(of("a.py::t", came_at(31, 42), outcome="failed"), width=width)
        assert lines[1:3] == ["", "✗ m.py:31: added kernel: k31 (t)"]
        assert lines[3:5] == ["  + k42 at m.py:42", "  worse than the revision: kernels 5 -> 7"]
        assert "from aten" not in " ".join(lines)
        assert sum("m.py:" in line for line in lines) == 2


def test_of_two_new_kernels_of_one_name_both_lines_are_told() -> None:
    lines = told(of("a.py::t", came_at(31, 42, name="k"), outcome="failed"))
    assert lines[2].startswith("✗ m.py:31")
    assert any("42" in line for line in lines)


@pytest.mark.parametrize(
    ("number", "causes"),
    [
        (4, ["  + k32 at m.py:32", "  + k33 at m.py:33", "  + k34 at m.py:34"]),
        (5, ["  + k32 at m.py:32; 3 others"]),
        (12, ["  + k32 at m.py:32; 10 others"]),
    ],
)
def test_of_more_than_three_causes_the_first_is_told_and_the_others_are_counted(
    number: int, causes: list[str]
) -> None:
    lines = told(of("a.py::t", came_at(*range(31, 31 + number)), outcome="failed"))
    worse = f"  worse than the revision: kernels 5 -> {5 + number}"
    end = next(i for i, line in enumerate(lines) if line.startswith("  to do: "))
    assert lines[1:3] == ["", "✗ m.py:31: added kernel: k31 (t)"]
    assert lines[3:end] == [*causes, worse]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ((21, 21), (21,)),
        ((21, 22), (21, 22)),
        ((21, 22, 23, 24), (21, 22, 23)),
    ],
)
def test_the_list_has_the_code_of_its_lines_three_at_most_with_their_numbers(
    lines: tuple[int, ...], shown: tuple[int, ...]
) -> None:
    kernels = [kernel(MUL, "aten::mul", source=f"model/m.py:{line}") for line in lines]
    verdicts = (kernels_limit("failed", len(lines), 1),)
    over_at = profile(kernels, verdicts=verdicts, place=Place("t.py", 7))
    digest = summary_of(Run((of("a.py::t", over_at, outcome="failed"),)))
    found = report_lines(digest, Style(80), code=lambda place: f"x{place.line} = {place.file}")
    _, empty, where, *below = map(plain, found)
    assert empty == ""
    assert where.startswith(f"✗ m.py:{', '.join(map(str, dict.fromkeys(lines)))}: max_kernels: ")
    code = [f"    {line} | x{line} = model/m.py" for line in shown]
    assert below[: len(code)] == code
    lead = "       | " if len(shown) == 1 else "  "
    assert below[len(code)] == f"{lead}vectorized_elementwise [mul] x{len(lines)}"
    assert below[len(code) + 1].startswith("  to do: ")


def waiting(copied_at: int, width: int = 80) -> list[Line]:
    """The list of a test that waits at two lines and copies at one, whose code is known."""
    calls = (("cudaStreamSynchronize", 21), ("cudaMemcpyAsync", 22))
    verdicts = (
        limit("failed", "max_syncs", "syncs", measured=2, allowed=0),
        limit("failed", "max_memcpys", "memcpys", measured=1, allowed=0),
    )
    one = mlp(
        *(counted("syncs", 2), counted("memcpys", 1)),
        waits=tuple(Wait(call, ("aten::item",), f"m.py:{line}") for call, line in calls),
        copies=(Copy("Memcpy DtoH", "d2h", 4, 1.0, (), f"m.py:{copied_at}"),),
        verdicts=verdicts,
    )
    digest = summary_of(Run((of("a.py::t", one, outcome="failed"),)))
    return report_lines(digest, Style(width), code=lambda place: f"code {place.line}")


@pytest.mark.parametrize(
    ("copied_at", "width", "below"),
    [
        (
            22,
            80,
            [
                "    21 | code 21",
                "       | wait in cudaStreamSynchronize",
                "    22 | code 22",
                "       | wait in cudaMemcpyAsync",
                "       | copied 4 B: Memcpy DtoH",
            ],
        ),
        (
            22,
            30,
            [
                "    21 | code 21",
                "       | wait in",
                "       | cudaStreamSynchronize",
                "    22 | code 22",
                "       | wait in",
                "       | cudaMemcpyAsync",
                "       | copied 4 B:",
                "       | Memcpy DtoH",
            ],
        ),
        (
            24,
            80,
            [
                "    21 | code 21",
                "       | wait in cudaStreamSynchronize",
                "    24 | code 24",
                "       | copied 4 B: Memcpy DtoH",
                "  wait in cudaMemcpyAsync at m.py:22",
            ],
        ),
    ],
)
def test_what_is_known_of_a_shown_line_stands_below_it_without_its_place(
    copied_at: int, width: int, below: list[str]
) -> None:
    found = waiting(copied_at, width)
    told = list(map(plain, found))
    at = told.index(below[0])
    assert told[at : at + len(below)] == below
    assert told[at + len(below)].startswith("  to do: ")
    about = {s.colour for line in found for s in line if s.text.startswith("wait in")}
    assert "red" in about


def test_the_line_of_the_call_has_no_code_in_the_list() -> None:
    kernels = [kernel(MUL, "aten::mul", source="t.py:7")] * 2
    bad = profile(kernels, verdicts=(kernels_limit("failed", 2, 1),), place=Place("t.py", 7))
    digest = summary_of(Run((of("a.py::t", bad, outcome="failed"),)))
    lines = report_lines(digest, Style(80), code=lambda _: "code")
    assert not any("code" in plain(line) for line in lines)


def over_at(line: int) -> Profile:
    """Of kernels that are launched at one line, too many of them."""
    kernels = [kernel(MUL, "aten::mul", source=f"model/m.py:{line}")] * line
    return profile(kernels, verdicts=(kernels_limit("failed", line, 1),))


@pytest.mark.parametrize(
    ("width", "command"),
    [
        (80, ["  rerun: pytest tests/a.py::t tests/a.py::u"]),
        (42, ["  rerun:", "    pytest tests/a.py::t tests/a.py::u"]),
        (32, ["  rerun:", "    pytest tests/a.py::t \\", "      tests/a.py::u"]),
    ],
)
def test_a_command_for_all_tests_of_a_problem_stands_beside_its_label_if_it_fits(
    width: int, command: list[str]
) -> None:
    lines = told(*(of(f"a.py::{name}", over_at(6), outcome="failed") for name in "tu"), width=width)
    assert " ".join(lines).count("rerun") == 1
    at = lines.index(command[0])
    todo = " ".join(line.strip() for line in lines[at - 3 : at])
    assert todo.endswith("to do: launch fewer kernels (fuse them, torch.compile)")
    assert lines[at : at + len(command)] == command


def test_what_a_snapshot_would_accept_has_its_command() -> None:
    both = (
        of("a.py::t", came_at(31), outcome="failed"),
        of("a.py::u", came_at(42), outcome="failed"),
    )
    lines = told(*both)
    assert sum(line.startswith("✗ m.py:") for line in lines) == 2
    accept = "  if intended, accept it in a snapshot: "
    told_of = [line.removeprefix(accept) for line in lines if line.startswith(accept)]
    assert told_of == [f"pytest tests/a.py::{name} --kernelprof-update" for name in "tu"]
    assert accept not in "".join(told(of("a.py::t", over(), outcome="failed")))


@pytest.mark.parametrize("verbosity", [0, 1])
def test_how_sure_a_broken_time_is_stands_in_its_failure_alone(verbosity: int) -> None:
    slow = kept(250.0, verdicts=(time_limit("failed", 250.0, 200.0, low=248.0, high=252.0),))
    lines = told(of("a.py::t", slow, outcome="failed"), verbosity=verbosity)
    assert lines[2].startswith("✗ tests/a.py: max_cuda_time: 250.0us > limit 200.0us")
    assert lines[3] == "  nvjet 256x128x64 TNT x3 takes 30.0us"
    assert lines[4].startswith("  to do: ")
    assert not any("99 % CI" in line for line in lines)
    assert "99 % CI 248.0..252.0us, 12 rounds" in failure_of(slow)


def test_of_more_than_six_problems_the_others_are_counted_and_no_command_is_empty() -> None:
    lines = told(*(of(f"a.py::test_{n}", over_at(n), outcome="failed") for n in range(2, 10)))
    assert sum(line.startswith("✗ m.py:") for line in lines) == 6
    assert lines.count("  2 more: -v lists all") == 1
    assert sum(line.startswith("  rerun: pytest tests/a.py::test_") for line in lines) == 6
    at = lines.index("rerun:")
    assert lines[at + 1] == "  pytest tests/a.py::test_8 tests/a.py::test_9"
    assert not any(line.strip().startswith(":") for line in lines)


def test_what_to_do_wraps_below_its_label() -> None:
    lines = told(of("a.py::t", over(), outcome="failed", line=7), width=32)
    at = lines.index("  to do: launch fewer kernels")
    assert lines[at + 1 : at + 5] == [
        "  (fuse them, torch.compile)",
        "  rerun: pytest tests/a.py::t",
        "  if intended, allow",
        "  max_kernels(5) at a.py:7",
    ]
    lines = told(of("a.py::t", over(), outcome="failed"), width=24)
    at = lines.index("  to do: launch fewer")
    assert lines[at + 1 : at + 3] == ["  kernels (fuse them,", "  torch.compile)"]


# q, v, vv.


def test_quiet_is_verdict_what_needs_a_look_and_integrity() -> None:
    bad = of("a.py::bad", over(), outcome="failed", line=7)
    lines = told(of("a.py::t", kept()), bad, verbosity=-1)
    assert [line for line in lines if line] == [
        "1 of 2 tests breaks a limit.",
        "✗ a.py:7: max_kernels: 5 > limit 4 (bad)",
        "  nvjet 256x128x64 TNT x3",
        "  vectorized_elementwise [gelu]",
        "  vectorized_elementwise [mul]",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  rerun: pytest tests/a.py::bad",
        "  if intended, allow max_kernels(5) at a.py:7",
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0",
        "2 profiles",
    ]


def test_very_verbose_has_the_kernels_under_each_row_neighbours_as_one() -> None:
    kernels = [kernel(GELU, "aten::gelu", us=2.5)] * 3
    one = profile(kernels, [timed("cuda_time", [7.5])], verdicts=(kernels_limit(),))
    lines = told(of("a.py::t", one), verbosity=2)
    assert lines[5:7] == [
        "       #   us  kernel                            grid, block  launched by",
        "    1..3  7.5  vectorized_elementwise [gelu] x3  1, 128       aten::gelu",
    ]


def test_verbose_has_launches_and_ten_kernels() -> None:
    kernels = [kernel(f"kernel_{n}", us=1.0) for n in "abcdefghijkl"]
    one = profile(kernels, [timed("cuda_time", [12.0])], verdicts=(kernels_limit(),))
    assert rows(told(of("a.py::t", one), verbosity=1))[0] == "kernels launches GPU us test"
    assert len([x for x in told(of("a.py::t", one), verbosity=1) if " 1 call " in x]) == 10
    assert len([x for x in told(of("a.py::t", one)) if " 1 call " in x]) == 3


# The CPU.


def test_on_the_cpu_operators_are_counted_and_nothing_of_the_gpu_is_a_column() -> None:
    verdicts = (
        kernels_limit(),
        limit("not judged", "max_syncs", "syncs", why="not applicable on the CPU"),
    )
    lines = told(
        of("a.py::t", profile(MLP, environment=CPU, verdicts=verdicts)),
        of("a.py::u", profile(MLP[:3], environment=CPU, verdicts=(kernels_limit(),))),
        *(
            Test(
                f"a.py::v[{i}]",
                outcome="skipped",
                limits=("max_syncs",),
                not_judged="no CUDA device",
            )
            for i in range(139)
        ),
    )
    assert lines[:7] == [
        "2 of 141 tests are within their limits; 139 not judged (no CUDA device),",
        "max_syncs not judged in 1 test (not applicable on the CPU).",
        "",
        "  operators  test",
        "tests/a.py",
        "✓         5  t",
        "    not judged: max_syncs: not applicable on the CPU",
    ]
    assert "✓         3  u" in lines
    words = " ".join(" ".join(lines).split())
    assert "to fail without a GPU: --kernelprof-require-gpu" in words
    assert "--kernelprof-require-gpu" in words


def test_a_run_on_both_has_two_tables_the_gpus_first() -> None:
    lines = told(
        of("a.py::cpu", profile(MLP, environment=CPU, verdicts=(kernels_limit(),))),
        of("a.py::gpu", kept()),
    )
    titles = [line.split()[0] for line in lines if line.endswith("  test")]
    assert titles == ["kernels", "operators"]


# Advice and totals.


def test_advice_names_the_number_that_it_rests_on() -> None:
    short = profile(
        [kernel("k", us=2.0)] * 4,
        [timed("launch_overhead", [81.7]), timed("latency", [96.0])],
        bound=Bound("overhead", ""),
        verdicts=(kernels_limit("passed", 4, 12),),
    )
    lines = told(of("a.py::test_short[1]", short), width=120)
    assert "tighten      test_short: max_kernels allows 12, needs 4" in lines


def test_of_many_pieces_of_advice_three_are_told() -> None:
    loose = kept(verdicts=(kernels_limit("passed", 5, 12),))
    lines = told(*(of(f"a.py::test_{i}", loose) for i in range(9)))
    at = next(i for i, line in enumerate(lines) if line.startswith("tighten"))
    assert lines[at + 3] == "             6 more"


def test_why_tests_may_be_missing_is_told() -> None:
    found = Run((of("a.py::t", kept()),), unfinished=("interrupted",))
    lines = [plain(line) for line in report_lines(summary_of(found), Style())]
    assert lines[:3] == [
        "1 of 1 test is within its limits.",
        "unfinished   tests may be missing: interrupted",
        "",
    ]


def test_kernels_beyond_those_one_by_one_count_among_the_hottest() -> None:
    one = profile([], [timed("cuda_time", [90.0])], more_kernels=(KernelGroup("gemm", 9, 90.0),))
    assert any("9 calls  90.0us  100 %  gemm" in line for line in told(of("a.py::t", one)))


# 9: colour.


def colours(*tests: Test, verbosity: int = 0) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in report_lines(summary_of(Run(tests)), Style(verbosity=verbosity)):
        for span in line:
            if span.colour and span.text.strip():
                found.setdefault(span.colour, set()).add(span.text)
    return found


def test_green_is_the_verdict_alone_and_only_if_all_is_well() -> None:
    assert colours(of("a.py::t", kept()))["green"] == {"1 of 1 test is within its limits."}
    assert "green" not in colours(of("a.py::t", over(), outcome="failed"))


def test_red_is_the_mark_and_the_broken_cell() -> None:
    test = of("a.py::t", over(), outcome="failed")
    found = {"✗ ", "1 of 1 test breaks a limit."}
    assert colours(test)["red"] == found
    assert colours(test, verbosity=1)["red"] == {*found, "✗", "  5 > 4"}


def test_in_the_list_where_to_look_is_cyan_and_what_is_wrong_and_to_do_are_bold() -> None:
    found = colours(of("a.py::t", over(), outcome="failed", line=7))
    assert found["cyan"] == {"a.py:7"}
    assert ": max_kernels: 5 > limit 4 " in found["bold"]
    assert "to do: " in found["bold"]
    assert "if intended, allow max_kernels(5) at a.py:7" in found["light"]
    coloured = [text for texts in found.values() for text in texts]
    assert not any("launch fewer" in text or "(t)" in text for text in coloured)


def test_where_it_was_measured_and_how_complete_it_is_are_light() -> None:
    last = {"NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0", "1 profile"}
    for test in (of("a.py::t", over(), outcome="failed"), of("a.py::t", kept())):
        assert last <= colours(test)["light"]


def test_a_metric_that_has_a_column_is_not_told_by_its_cause_too() -> None:
    metrics = [
        counted(name, 3) if one.kind == "exact" else timed(name, [3.0])
        for name, one in METRICS.items()
    ]
    found = summary_of(Run((of("a.py::t", profile(MLP, metrics)),)))
    columns = {one.key for one in columns_of(found.rows, verbose=True)}
    assert columns & METRICS.keys() == {*CELLS, "would_wait"}  # which no limit is about


def test_of_a_failure_above_the_section_says_the_cause_and_what_to_do() -> None:
    kernels = [kernel("k", "aten::k", source="m.py:7")] * 2
    over_one = profile(kernels, verdicts=(kernels_limit("failed", 2, 1),))
    test = of("t.py::test_it", over_one, outcome="failed")
    lines = report_lines(summary_of(Run((test,))), Style(80), told=(test.id,))
    found = [plain(line) for line in lines]
    at = next(i for i, line in enumerate(found) if line.startswith("✗ "))
    todo = "  to do: launch fewer kernels (fuse them, torch.compile)"
    assert found[at + 1 : at + 4] == ["  k x2", todo, ""]
