"""What changed against the base: a revision, or an earlier run; nothing of what cannot compare."""

from __future__ import annotations

from records import mlp, timed

from pytest_kernelprof.digest.base import changes_of
from pytest_kernelprof.schema.against import AgainstTest, Compared
from pytest_kernelprof.schema.before import EarlierComparison, RevisionComparison
from pytest_kernelprof.schema.diff import ProfileDiff
from pytest_kernelprof.schema.run import Run, Test, Verdict
from pytest_kernelprof.schema.runs import MetricComparison, ProfileComparison, RunsComparison
from pytest_kernelprof.schema.turns import Timing


def test_a_run_without_a_base_has_no_changes() -> None:
    assert changes_of(Run((Test("t.py::a", (mlp(),)),))) is None


def test_of_a_test_with_several_profiles_each_has_its_own_result() -> None:
    def one(label: str, old: int, new: int, timing: Timing | None = None) -> Compared:
        diff = ProfileDiff(old_kernels=old, new_kernels=new, old_us=1.0, new_us=1.0)
        worse, better = (("kernels",) if more else () for more in (new > old, new < old))
        return Compared(label, diff, worse, better, timing=timing)

    undecided = Timing("undecided", why="too few turns")
    profiles = (
        *(one("a", 5, 5), one("b", 5, 6), one("c", 5, 4), one("d", 5, 5, undecided)),
        one("e", 5, 5, Timing("not timed")),
    )
    test = AgainstTest("t.py::test_it", "worse", profiles=profiles)
    found = changes_of(Run(against=RevisionComparison("main", (), {"worse": 1}, (test,))))
    assert found is not None
    assert [(row.label, row.result) for row in found.rows] == [
        ("b", "worse"),
        ("d", "undecided"),
        ("c", "better"),
    ]
    # Kernels come and go; of no pair is there a time.
    assert (found.more_kernels, found.ratio) == (0, None)
    assert found.words == "1 worse"
    assert found.told == "1 worse, same number of kernels"


def test_what_cannot_run_there_says_why_and_is_no_change_of_kernels() -> None:
    tests = (AgainstTest("t.py::new", "cannot run", why="no such test"),)
    found = changes_of(Run(against=RevisionComparison("main", (), {"cannot run": 1}, tests)))
    assert found is not None
    (row,) = found.rows
    assert (row.reasons, row.kernels, row.share) == ("no such test", None, None)
    assert found.words == found.told == "1 cannot run on main"


def test_nothing_compared_is_said() -> None:
    found = changes_of(Run(against=RevisionComparison("main")))
    assert found is not None
    assert found.words == "nothing was compared"


def metric(name: str, old: float | None, new: float, verdict: str, *, judged: bool) -> object:
    unit = "us" if name == "cuda_time" else "count"
    kind = "timed" if name == "cuda_time" else "exact"
    return MetricComparison(name, kind, unit, (None, old), new, verdict, judged=judged)  # type: ignore[arg-type]


def judged(name: str, *metrics: object) -> Test:
    comparison = ProfileComparison(test=name, metrics=metrics)  # type: ignore[arg-type]
    verdict = Verdict(limit="compare", outcome="kept", comparison=comparison)
    return Test(name, (mlp(timed("cuda_time", [234.9]), verdicts=(verdict,)),))


def test_against_an_earlier_run_what_is_judged_is_worse_and_the_rest_is_said() -> None:
    tests = (
        judged("t.py::same"),
        judged("t.py::worse", metric("kernels", 4, 5, "worse", judged=True)),
        judged("t.py::slower", metric("cuda_time", 200.0, 234.9, "worse", judged=False)),
        judged("t.py::better", metric("kernels", 7, 5, "better", judged=True)),
        judged("t.py::doubted", metric("cuda_time", 230.0, 234.9, "undecided", judged=True)),
    )
    compared = RunsComparison(compared=6, uncompared=("t.py::lost",))
    earlier = EarlierComparison("old.json", "2026-11-22T08:50:00Z", compared)
    found = changes_of(Run(tests, earlier=earlier))
    assert found is not None
    assert [(row.test.partition("::")[2], row.result) for row in found.rows] == [
        *(("worse", "worse"), ("slower", "not judged")),
        *(("doubted", "undecided"), ("better", "better")),
    ]
    assert found.base == "old.json (2026-11-22T08:50:00Z)"
    assert found.words == (
        "1 worse, 1 worse (not checked), 1 undecided, 1 better, 2 unchanged, 1 not compared"
    )
    slower = found.rows[1]
    assert slower.share is not None
    assert round(slower.share, 3) == 0.175
    # Of those that are the same no time is known.
    assert found.told == f"{found.words}, 1 fewer kernel in total"
