"""What every run tells at its end: comparisons of callables, and limits that need a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from records import CPU, MLP, comparison, mlp, profile
from terminal_double import Terminal

from pytest_kernelprof.report.comparisons import unjudged_line, write_comparisons
from pytest_kernelprof.schema import run
from pytest_kernelprof.schema.run import Profile, Verdict


def limits(*outcomes: Any) -> Profile:
    """One limit each, of another name."""
    names = ("max_kernels", "max_syncs", "max_launches", "max_memcpys")
    verdicts = (Verdict(limit=n, outcome=o) for n, o in zip(names, outcomes, strict=False))
    return profile(MLP, verdicts=tuple(verdicts), environment=CPU)


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
