"""What every run tells at its end: comparisons of callables, and limits that need a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from records import CPU, MLP, comparison, mlp, profile

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Profile, Verdict
from pytest_kernelprof.report.kernel_tables import comparison_lines
from pytest_kernelprof.report.tables import Style, plain
from pytest_kernelprof.report.terminal import open_lines, report_lines
from pytest_kernelprof.summary.run import summary_of


def limits(*outcomes: Any) -> Profile:
    """One limit each, of another name."""
    names = ("max_kernels", "max_syncs", "max_launches", "max_memcpys")
    why = "needs a GPU"
    verdicts = (Verdict(limit=n, outcome=o, why=why) for n, o in zip(names, outcomes, strict=False))
    return profile(MLP, verdicts=tuple(verdicts), environment=CPU)


@pytest.mark.parametrize(
    ("tests", "line"),
    [
        ([limits("passed", "passed")], ""),
        ([limits("passed", "not judged")], "max_syncs not judged in 1 test (needs a GPU)"),
        (
            [
                limits("passed", "not judged"),
                limits("passed"),
                limits("passed", "passed", "not judged"),
            ],
            "max_syncs, max_launches not judged in 2 tests (needs a GPU)",
        ),
    ],
    ids=["all", "one test", "several"],
)
def test_limits_that_need_a_gpu_are_told_beside_those_that_were_judged(
    tests: list[Profile], line: str
) -> None:
    of = tuple(Test(f"a/t.py::t{i}", (one, one)) for i, one in enumerate(tests))
    told = open_lines(summary_of(Run(of)))
    assert [one.partition("; ")[2] for one in told] == ([f"{line}."] if line else [])


def test_a_comparison_says_what_was_asserted_and_how_its_test_ended() -> None:
    broken = Verdict(
        limit="min_speedup", qualifier="2", outcome="failed", unit="times", metric="cuda_time",
        measured=1.2, allowed=2.0, low=1.1, high=1.3, rounds=12, candidate="fused",
    )  # fmt: skip
    test = Test("t", (), comparisons=(comparison(verdicts=(broken,)),), outcome="failed")
    lines = [plain(line) for line in report_lines(summary_of(Run((test,))), Style(), brief=True)]
    assert lines[1:4] == [
        "",
        "✗ min_speedup(2): 1.200 times < limit 2.000 times (t)",
        "  fused over eager, GPU time: speedup 1.200 (99 % CI 1.100..1.300, 12 pairs)",
    ]
    table = comparison_lines([test], Style())
    assert table[0] == "t (failed)"
    assert [line.split()[-1] for line in table[1:]] == ["callable", "fused", "eager"]
    assert lines[lines.index("t (failed)") :][: len(table)] == table


def test_comparisons_stand_under_the_tests_that_made_them() -> None:
    tests = [Test("a/test_it.py::test_b[c/d]", comparisons=(comparison(),)), Test("x")]
    lines = comparison_lines(tests, Style())
    assert lines[0] == "test_it.py::test_b[c/d]"
    assert lines[1].endswith("  callable")
    assert len(lines) == 4


def test_where_nothing_was_compared_there_is_no_line() -> None:
    assert comparison_lines([Test("x", (mlp(),))], Style()) == []


def test_in_brief_only_comparisons_that_ask_for_a_look_are_there() -> None:
    broken = Verdict(limit="min_speedup", outcome="failed", metric="cuda_time", measured=1.2)
    bad = Test("t.py::test_bad", comparisons=(comparison(verdicts=(broken,)),), outcome="failed")
    well = Test("t.py::test_well", comparisons=(comparison(),))
    found = summary_of(Run((bad, well)))

    def told(*, brief: bool) -> str:
        return "\n".join(map(plain, report_lines(found, Style(), brief=brief)))

    assert "test_bad (failed)\n" in told(brief=True)
    assert "test_well" not in told(brief=True)
    assert "\nt.py::test_well\n" in told(brief=False)
