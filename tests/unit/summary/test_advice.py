"""What to do about a profile: each advice names the number that it rests on."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from msgspec.structs import replace
from records import CPU, held_to, kernel, mlp, profile

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.limits import kinds
from pytest_kernelprof.limits.kinds import COMPARISONS, KINDS, parse_keyword
from pytest_kernelprof.records.comparison import (
    LIMIT_OF,
    KernelDiff,
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    SnapshotReport,
    Source,
    TestState,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Cause, Place, Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.summary.advice import (
    commands_of,
    cure_words,
    fix_words,
    intended_words,
    tasks_of,
    update_command,
)
from pytest_kernelprof.summary.records import Problem, Remedy
from pytest_kernelprof.summary.run import summary_of

TIMES = ("max_cuda_time", "max_launch_overhead", "max_exposed_comm", "max_latency")
RATES = {"min_throughput": "1 TFLOP/s", "min_bandwidth": "1 TB/s"}
SIZES = ("max_memcpy_bytes", "max_peak_memory", "max_shared_memory")
VALUES = {
    **RATES,
    **dict.fromkeys(TIMES, "1us"),
    **dict.fromkeys(SIZES, "1 MB"),
    "expect_kernels": ["mm"],
    "forbid_kernels": "mm",
}


@pytest.mark.parametrize("name", sorted(set(KINDS) - set(COMPARISONS)))
def test_each_limit_has_its_own_advice(name: str) -> None:
    limit = parse_keyword(name, VALUES.get(name, 1))
    told = cure_words(mlp(), [Verdict(limit=name, outcome="failed", metric=limit.metric)])
    assert told
    assert told != "change the code"


METRIC_OF = {
    name: parse_keyword(name, VALUES.get(name, 1)).metric for name in set(KINDS) - set(COMPARISONS)
}
RAISED = [
    ("max_kernels", "", "count", 5, {}),
    ("max_kernels", "gelu", "count", 5, {}),
    ("max_launches", "", "count", 5, {}),
    ("max_syncs", "", "count", 2, {}),
    ("max_allocations", "", "count", 2, {}),
    ("max_recompiles", "", "count", 1, {}),
    ("max_jit_compiles", "", "count", 1, {}),
    ("max_autotunes", "", "count", 1, {}),
    ("max_graph_breaks", "", "count", 2, {}),
    ("max_memcpys", "d2h", "count", 1, {}),
    ("max_memcpy_bytes", "", "bytes", 4_096, {}),
    ("max_memcpy_bytes", "d2h", "bytes", 4, {}),
    ("max_peak_memory", "", "bytes", 214_000_001, {}),
    ("max_registers", "gemm", "count", 168, {}),
    ("max_shared_memory", "", "bytes", 221_184, {}),
    ("max_spills", "", "bytes", 7_872, {}),
    ("max_spills", "gemm", "registers", 12, {}),
    ("max_cuda_time", "", "us", 250.0, {"high": 252.0}),
    ("max_cuda_time", "", "us", 2_345_678.0, {}),
    ("max_latency", "", "us", 0.04, {}),
    ("max_launch_overhead", "", "us", 60.0, {"share": 0.1, "share_of": 200.0}),
    ("max_exposed_comm", "", "us", 60.0, {}),
    ("min_throughput", "", "FLOP/s", 612.34e12, {"low": 598.1e12}),
    ("min_throughput", "", "FLOP/s", 612.34e12, {"share": 0.8, "share_of": 989.5e12}),
    ("min_bandwidth", "", "B/s", 98.7e9, {}),
]


@pytest.mark.parametrize(("name", "qualifier", "unit", "measured", "more"), RAISED)
def test_the_limit_that_is_advised_can_be_written_and_would_hold(
    name: str, qualifier: str, unit: Any, measured: float, more: dict[str, float]
) -> None:
    metric = f"{METRIC_OF[name]}_{qualifier}" if qualifier == "d2h" else METRIC_OF[name]
    verdict = Verdict(
        limit=name, qualifier=qualifier, outcome="failed", unit=unit, metric=metric,
        measured=measured, **more,
    )  # fmt: skip
    told = intended_words([verdict]).removeprefix("if intended, allow ")
    told, spare, _ = told.partition(" (5 % to spare)")
    assert bool(spare) == (unit in ("us", "FLOP/s", "B/s"))
    call = ast.parse(told, mode="eval").body
    assert isinstance(call, ast.Call)
    keywords = {one.arg or "": ast.literal_eval(one.value) for one in call.keywords}
    limit = getattr(kinds, ast.unparse(call.func))(*map(ast.literal_eval, call.args), **keywords)
    allowed = limit.bound * (more["share_of"] if "share" in more else 1.0)
    assert limit.metric == metric
    assert allowed <= more.get("low", measured) if name in RATES else allowed >= measured


def test_a_command_is_never_about_every_test_where_only_some_need_it() -> None:
    tests = [f"test_{i}.py::test_it" for i in range(41)]
    assert update_command(tests, "H200") == "pytest test_0.py::test_it --kernelprof-update"
    in_one = [f"test_a.py::test_{i}" for i in range(9)]
    assert update_command(in_one, "H200") == "pytest test_a.py --kernelprof-update"
    assert update_command(["t.py::test_it[a b]"], "cpu") == (
        "pytest 't.py::test_it[a b]' --kernelprof-update --kernelprof-device=cpu"
    )


def test_a_speedup_that_is_missed_is_no_limit_to_raise() -> None:
    slow = Verdict(
        limit="min_speedup", qualifier="1.5", outcome="failed", unit="times", metric="cuda_time",
        measured=1.05,
    )  # fmt: skip
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=3)
    assert intended_words([over, slow]) == "if intended, allow max_kernels(3)"
    assert intended_words([slow]) == ""


@pytest.mark.parametrize(
    ("copies", "allowed", "match", "told"),
    [
        (1, 2, "", "avoid the copy (keep layout and dtype)"),
        (2, 1, "", "avoid the 2 copies (keep layout and dtype)"),
        (1, 1, "", "launch fewer kernels (fuse them, torch.compile)"),  # one copy less is too few
        (0, 2, "", "launch fewer kernels (fuse them, torch.compile)"),
        (2, 1, "gemm", "launch fewer kernels (fuse them, torch.compile)"),  # counts no copies
    ],
)
def test_copies_are_what_to_avoid_where_that_is_enough(
    copies: int, allowed: int, match: str, told: str
) -> None:
    ran = [kernel("elementwise [copy]", "aten::copy_")] * copies
    ran += [kernel("gelu", "aten::gelu")] * (3 - copies)
    over = Verdict(
        limit="max_kernels", qualifier=match, outcome="failed", metric="kernels", measured=3,
        allowed=allowed,
    )  # fmt: skip
    assert cure_words(profile(ran), [over]) == told


@pytest.mark.parametrize(
    ("kernels", "command"),
    [
        ("kernels", "accept it in a snapshot with --kernelprof-update"),
        ("operators", "accept it in a snapshot with --kernelprof-update --kernelprof-device=cpu"),
    ],
)
def test_a_limit_and_a_snapshot_that_are_exceeded_are_accepted_where_they_were_measured(
    kernels: Any, command: str
) -> None:
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=3)
    diff = KernelDiff(baseline_kernels=2, current_kernels=3, what=kernels)
    found = ProfileComparison(source="snapshot", change="worse", kernels=diff)
    exceeded = Verdict(limit="snapshot", outcome="failed", comparison=found)
    assert cure_words(mlp(), [over, exceeded]) == "launch fewer kernels (fuse them, torch.compile)"
    assert intended_words([over, exceeded]) == f"if intended, allow max_kernels(3), and {command}"
    assert intended_words([exceeded]) == ""  # another command accepts it, or nothing does
    assert intended_words([over]) == "if intended, allow max_kernels(3)"


def test_a_time_that_is_worse_is_allowed_by_a_margin_counts_by_warnings_alone() -> None:
    pairs = (TimedPair(None, 1.084, 12, 40.0, 43.3), TimedPair(None, 1.09, 12, 40.0, 43.6))
    slower = Paired("worse", ratio=1.084, pairs=pairs, agreeing=2)
    more = MetricDelta(name="kernels", baselines=(3,), current=4, change="worse", judged=True)

    def intended(*metrics: MetricDelta, also: tuple[Verdict, ...] = ()) -> str:
        found = ProfileComparison(source="revision", change="worse", metrics=metrics, paired=slower)
        against = Verdict(limit="against", outcome="failed", comparison=found)
        return intended_words([*also, against], "main")

    assert intended() == "if intended, allow kernelprof(margin='10%') until main has this change"
    over = Verdict(limit="max_launches", outcome="failed", metric="launches", measured=3)
    assert intended(also=(over,)) == (
        "if intended, allow max_launches(3) and kernelprof(margin='10%') until main has this change"
    )
    assert intended(more).startswith("if intended, run with --kernelprof-warn-only ")


def judged_worse(source: Source, *names: str, kernels: Any = "kernels", us: float = 0) -> Verdict:
    """By metrics, and by a time where one is given."""
    metrics = tuple(
        MetricDelta(name=name, baselines=(3,), current=4, change="worse", judged=True)
        for name in names
    )
    pairs = (TimedPair(None, 1.084, 12, us, us * 1.084),) if us else ()
    found = ProfileComparison(
        source=source,
        change="worse",
        kernels=KernelDiff(baseline_kernels=3, current_kernels=4, what=kernels),
        metrics=metrics,
        paired=Paired("worse", ratio=1.084, pairs=pairs, agreeing=1) if us else None,
    )
    return Verdict(limit=LIMIT_OF[source], outcome="failed", comparison=found)


@pytest.mark.parametrize(
    ("verdict", "accepted"),
    [
        (judged_worse("revision", "kernels"), ""),
        (judged_worse("revision", "kernels", "launches", "memcpys", "syncs"), ""),
        (judged_worse("revision", "kernels", kernels="operators"), " --kernelprof-device=cpu"),
        (judged_worse("revision", "peak_memory"), None),
        (judged_worse("revision", "kernels", "peak_memory"), None),
        (judged_worse("revision", "kernels", us=40.0), None),
        (judged_worse("run", "kernels"), None),
    ],
    ids=["count", "counts", "on the CPU", "memory", "both", "slower and more", "earlier run"],
)
def test_what_a_snapshot_accepts_is_advised_and_warnings_alone_where_it_does_not(
    verdict: Verdict, accepted: str | None
) -> None:
    until = "run with --kernelprof-warn-only (all tests only warn) until main has this change"
    snapshot = f"accept it in a snapshot with --kernelprof-update{accepted}"
    helps = until if accepted is None else snapshot
    assert intended_words([verdict], "main") == f"if intended, {helps}"
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=4)
    assert intended_words([over, verdict], "main") == (
        f"if intended, allow max_kernels(4), and {helps}"
    )


def test_against_another_environment_no_snapshot_accepts_and_no_commit_changes_it() -> None:
    more, slower = judged_worse("environment", "kernels"), judged_worse("environment", us=40.0)
    warned = "if intended, run with --kernelprof-warn-only (all tests only warn)"
    assert intended_words([more], "old/bin/python") == warned
    margin = "if intended, allow kernelprof(margin='10%')"
    assert intended_words([slower], "old/bin/python") == margin


@pytest.mark.parametrize(
    ("added", "told"),
    [
        (["elementwise [copy]"], "avoid the added copy (keep layout and dtype)"),
        (["elementwise [copy] x2, from aten::copy_", "strided elementwise [copy]"],
         "avoid the added copies (keep layout and dtype)"),
        (["elementwise [copy]", "gelu"], "remove the added kernels, or fuse them (torch.compile)"),
    ],
)  # fmt: skip
def test_added_copies_are_to_be_avoided_like_those_over_a_limit(
    added: list[str], told: str
) -> None:
    causes = [Cause("mm", sign="-"), *(Cause(one, sign="+") for one in added)]
    assert fix_words(causes, on_cpu=False) == told


def test_of_several_slower_kernels_it_is_told_how_many_there_are() -> None:
    slower = [Cause(f"slower: {name}, 1.0us -> 2.0us") for name in ("gelu", "mul")]
    assert (
        fix_words(slower[:1], on_cpu=False) == "find what slows down gelu (shapes, dtype, layout)"
    )
    both = "find what slows down these 2 kernels (shapes, dtype, layout)"
    assert fix_words(slower, on_cpu=False) == both


def test_where_no_line_launches_what_is_too_much_the_call_is_where_to_look() -> None:
    over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=5, allowed=4)
    called = mlp(verdicts=(over,), place=Place("test_it.py", 7))
    run = Run((Test("test_it.py::test_a", (called,), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert task.places == (Place("test_it.py", 7),)


@pytest.mark.parametrize(("line", "place"), [("new.py:4", "new.py"), ("", "test_it.py")])
def test_what_is_gone_is_nowhere_to_look(line: str, place: str) -> None:
    old = profile([kernel("was", "aten::a", source="gone.py:3")])
    new = profile(
        [kernel(one, one, source=line) for one in ("b", "c")], place=Place("test_it.py", 7)
    )
    worse = ProfileComparison(source="revision", change="worse", kernels=diff_profiles(old, new))
    run = Run((Test("test_it.py::test_a", (held_to(new, worse),), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert [one.file for one in task.places] == [place]


def over_by(measured: int, *lines: int, name: str = "test_a") -> Test:
    over = Verdict(
        limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=measured,
        allowed=3,
    )  # fmt: skip
    kernels = [kernel("k", "aten::k", source=f"m.py:{line}") for line in lines]
    return Test(f"t.py::{name}", (profile(kernels, verdicts=(over,)),), outcome="failed")


@pytest.mark.parametrize(("number", "more"), [(2, ()), (4, ()), (11, ("and 7 more",))])
def test_of_several_tests_it_is_told_what_is_wrong_with_each(
    number: int, more: tuple[str, ...]
) -> None:
    tests = tuple(over_by(20 - i, 7, 7, 7, 7, name=f"test_{i}") for i in range(number))
    (task,) = tasks_of(summary_of(Run(tests)).problems)
    assert task.test == f"{number} tests"
    each = [f"test_{i}: max_kernels: {20 - i} > limit 3" for i in range(1, min(number, 4))]
    assert task.what == "max_kernels: 20 > limit 3"
    assert task.facts == ("k x4", "test_0", *each, *more)


def test_tests_with_equal_words_share_a_line_and_those_of_the_heading_are_names() -> None:
    tests = [over_by(5 - i // 2, 7, 7, 7, 7, name=f"test_{i}") for i in range(4)]
    (task,) = tasks_of(summary_of(Run(tuple(tests))).problems)
    assert (task.what, task.test) == ("max_kernels: 5 > limit 3", "4 tests")
    assert task.facts == ("k x4", "test_0, test_1", "test_2, test_3: max_kernels: 4 > limit 3")


@pytest.mark.parametrize(
    ("number", "names"),
    [
        (2, "test_0, test_1"),
        (4, "test_0, test_1, test_2, test_3"),
        (40, "test_0, test_1, test_2, test_3, and 36 more"),
    ],
)
def test_of_many_tests_with_equal_words_four_are_named(number: int, names: str) -> None:
    tests = [over_by(4, 7, 7, 7, 7, name=f"test_{i}") for i in range(number)]
    (task,) = tasks_of(summary_of(Run(tuple(tests))).problems)
    assert task.facts == ("k x4", names)


def test_of_many_groups_with_equal_words_four_are_told_and_the_tests_of_the_others_counted() -> (
    None
):
    tests = [over_by(11 - i // 2, 7, 7, 7, 7, name=f"test_{i}") for i in range(14)]
    (task,) = tasks_of(summary_of(Run(tuple(tests))).problems)
    assert (task.what, task.test) == ("max_kernels: 11 > limit 3", "14 tests")
    assert task.facts == (
        "k x4",
        "test_0, test_1",
        "test_2, test_3: max_kernels: 10 > limit 3",
        "test_4, test_5: max_kernels: 9 > limit 3",
        "test_6, test_7: max_kernels: 8 > limit 3",
        "and 6 more",
    )


def test_names_of_folded_parametrisations_count_as_the_tests_that_they_stand_for() -> None:
    names = [f"test_{letter}[{i}]" for letter in "abcdef" for i in range(8)]
    folded = [f"test_{letter}[0] and 7 more" for letter in "abcd"]
    alike = [over_by(4, 7, 7, 7, 7, name=name) for name in names]
    (task,) = tasks_of(summary_of(Run(tuple(alike))).problems)
    assert task.facts == ("k x4", f"{', '.join(folded)}, and 16 more")
    each = [over_by(20 - i // 8, 7, 7, 7, 7, name=name) for i, name in enumerate(names)]
    (task,) = tasks_of(summary_of(Run(tuple(each))).problems)
    told = [f"{name}: max_kernels: {20 - i} > limit 3" for i, name in enumerate(folded)]
    assert task.facts == ("k x4", folded[0], *told[1:], "and 16 more")


def test_where_two_limits_are_broken_tests_with_the_words_of_the_heading_are_names_too() -> None:
    def over_both(measured: int, name: str) -> Test:
        test = over_by(measured, 7, 7, 7, 7, name=name)
        (taken,) = test.profiles
        (kernels,) = taken.verdicts
        launches = replace(kernels, limit="max_launches", metric="launches")
        return replace(test, profiles=(replace(taken, verdicts=(kernels, launches)),))

    tests = [over_both(5 - i // 2, f"test_{i}") for i in range(4)]
    (task,) = tasks_of(summary_of(Run(tuple(tests))).problems)
    assert task.what == "max_kernels, max_launches: 5 > limit 3"
    others = "test_2, test_3: max_kernels, max_launches: 4 > limit 3"
    assert task.facts == ("k x4", "test_0, test_1", others)


def test_of_one_test_what_is_wrong_is_told_beside_a_new_kernel_alone() -> None:
    (task,) = tasks_of(summary_of(Run((over_by(4, 7, 7, 7, 7),))).problems)
    assert task.what == "max_kernels: 4 > limit 3"
    assert task.facts == ("k x4",)
    old, new = (profile([kernel(one, one) for one in names]) for names in ("abc", "abcd"))
    more = MetricDelta(name="kernels", baselines=(3,), current=4, change="worse", judged=True)
    worse = ProfileComparison(
        source="snapshot", change="worse", kernels=diff_profiles(old, new), metrics=(more,)
    )
    run = Run((Test("t.py::test_a", (held_to(new, worse),), outcome="failed"),))
    (task,) = tasks_of(summary_of(run).problems)
    assert task.what == "added kernel: d"
    assert task.facts == ("snapshot: kernels 3 -> 4",)


@pytest.mark.parametrize(
    ("why", "todo", "facts"),
    [
        (
            "MarkerError: max_kernels: 'many' is not a whole number. Write max_kernels(3) or "
            "max_kernels(n=3) (see docs/reference.md#markers)",
            "write max_kernels(3) or max_kernels(n=3) (see docs/reference.md#markers)",
            (),
        ),
        ("OddError: no. Write 3", "", ("Write 3",)),
        ("ValueError: no such layer", "", ()),
    ],
)
def test_the_hint_of_an_error_of_ours_is_what_to_do_and_is_not_repeated(
    why: str, todo: str, facts: tuple[str, ...]
) -> None:
    (task,) = tasks_of(summary_of(Run((Test("t.py::t", outcome="error", why=why),))).problems)
    assert task.what == why.partition(". ")[0]
    assert task.remedy == Remedy(todo, "rerun", "pytest t.py::t", tests=("t.py::t",))
    assert task.facts == facts


def commands(*tests: Test) -> list[tuple[str, str]]:
    return list(commands_of(summary_of(Run(tests)).problems))


def test_problems_whose_commands_differ_in_their_tests_alone_have_one_command() -> None:
    several = [over_by(4, 7, 7, 7, 7), over_by(5, 8, 8, 8, 8, 8, name="test_b")]
    assert len(summary_of(Run(tuple(several))).problems) == 2
    assert commands(*several) == [("rerun", "pytest t.py::test_a t.py::test_b")]
    on_cpu = replace(several[1], profiles=(replace(several[1].profiles[0], environment=CPU),))
    assert sorted(commands(several[0], on_cpu)) == [
        ("rerun", "pytest t.py::test_a"),
        ("rerun", "pytest t.py::test_b --kernelprof-device=cpu"),
    ]


def kept_as(name: str, state: TestState) -> Test:
    report = SnapshotReport(file="t.py", device="H200", key=name, state=state)
    return Test(f"t.py::{name}", (mlp(),), snapshot=report)


def test_updates_that_do_different_things_have_one_command() -> None:
    does = "to update outdated or missing snapshots"
    both = [(does, "pytest t.py::test_a t.py::test_b --kernelprof-update")]
    assert commands(kept_as("test_a", "changed"), kept_as("test_b", "changed")) == both
    assert commands(kept_as("test_a", "changed"), kept_as("test_b", "missing")) == both


def exceeding(name: str) -> Test:
    """A test that fails by its snapshot, which can be updated."""
    old, new = (profile([kernel(one, one) for one in names]) for names in ("abc", "abcd"))
    worse = ProfileComparison(source="snapshot", change="worse", kernels=diff_profiles(old, new))
    report = SnapshotReport(file="t.py", device="H200", key=name, accepts=True)
    taken = held_to(new, worse)
    return Test(f"t.py::{name}", (taken,), outcome="failed", snapshot=report)


def test_what_a_test_fails_by_is_accepted_apart_from_what_is_only_outdated() -> None:
    assert commands(exceeding("test_a"), kept_as("test_b", "changed"), exceeding("test_c")) == [
        ("rerun", "pytest t.py::test_a t.py::test_c"),
        ("to update outdated or missing snapshots", "pytest t.py::test_b --kernelprof-update"),
        (
            "to accept in a snapshot, if intended",
            "pytest t.py::test_a t.py::test_c --kernelprof-update",
        ),
    ]


def test_beside_a_test_over_its_limit_a_snapshot_accepts_after_raising_it() -> None:
    """An update refuses that test, which has the same cause."""
    over = Verdict(
        limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=4, allowed=3
    )
    one, both = exceeding("test_a"), exceeding("test_b")
    (taken,), report = both.profiles, replace(both.snapshot, accepts=False)
    both = replace(
        both, profiles=(replace(taken, verdicts=(over, *taken.verdicts)),), snapshot=report
    )
    tests = "pytest t.py::test_a t.py::test_b"
    assert commands(one, both) == [
        ("rerun", tests),
        ("to accept in a snapshot, after raising the limits", f"{tests} --kernelprof-update"),
    ]


def test_no_snapshot_is_offered_beside_a_forbidden_kernel() -> None:
    forbidden = Verdict(limit="forbid_kernels", outcome="failed", why="1 forbidden kernel ran")
    verdicts = (forbidden, judged_worse("revision", "kernels"))
    test = Test("t.py::test_a", (mlp(verdicts=verdicts),), outcome="failed")
    assert commands(test) == [("rerun", "pytest t.py::test_a")]


def test_one_error_is_one_problem_with_a_profile_on_the_cpu_and_without() -> None:
    on_cpu = replace(mlp(), environment=CPU)
    tests = [
        Test(f"t.py::{name}", profiles, outcome="failed", why="RuntimeError: no")
        for name, profiles in (("test_a", (on_cpu,)), ("test_b", ()))
    ]
    (problem,) = summary_of(Run(tuple(tests))).problems
    assert problem.tests == 2


def test_while_a_limit_is_broken_a_snapshot_accepts_after_the_limits() -> None:
    over = Verdict(
        limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=4, allowed=3
    )
    worse = judged_worse("revision", "kernels")
    several = [
        Test(f"t.py::{name}", (mlp(verdicts=verdicts),), outcome="failed")
        for name, verdicts in (("test_a", (over, worse)), ("test_b", (worse,)))
    ]
    found = commands(*several)
    assert ("rerun", "pytest t.py::test_a t.py::test_b") in found
    assert sorted(found[1:]) == [
        (
            "to accept in a snapshot, after raising the limits",
            "pytest t.py::test_a --kernelprof-update",
        ),
        ("to accept in a snapshot, if intended", "pytest t.py::test_b --kernelprof-update"),
    ]


def test_what_is_to_be_done_otherwise_has_a_command_of_its_own() -> None:
    lost = mlp(integrity=Integrity(("17 of 18 launches have their kernel",)))
    assert commands(over_by(4, 7, 7, 7, 7), Test("t.py::test_b", (lost,), outcome="error")) == [
        ("rerun", "pytest t.py::test_a"),
        ("run these tests alone", "pytest t.py::test_b"),
    ]


def test_without_a_command_there_is_none() -> None:
    assert list(commands_of([Problem(None, (), Remedy("what nothing checks"))])) == []


@pytest.mark.parametrize(("files", "all_failed", "told"), [
    (40, True, " ".join(f"t{i}.py" for i in range(40))),
    (40, False, " ".join(f"t{i}.py" for i in range(40))),
    (41, True, "t0.py::test_a"),
])  # fmt: skip
def test_of_more_than_forty_files_a_command_is_for_the_first_test(
    files: int, *, all_failed: bool, told: str
) -> None:
    def of(file: str, name: str) -> Test:
        if all_failed:
            return Test(f"{file}::{name}", outcome="failed", why="no")
        return replace(kept_as(name, "missing"), id=f"{file}::{name}")

    tests = [of(f"t{i}.py", name) for i in range(files) for name in ("test_a", "test_b")]
    ((_, command),) = commands(*tests)
    assert command == f"pytest {told}{'' if all_failed else ' --kernelprof-update'}"


@pytest.mark.parametrize(
    ("number", "told"),
    [(8, " ".join(f"t.py::test_{i}" for i in range(8))), (9, "t.py")],
)
def test_up_to_eight_tests_are_named_in_a_command_and_more_given_by_their_files(
    number: int, told: str
) -> None:
    tests = [over_by(20 - i, *[7 + i % 2] * 4, name=f"test_{i}") for i in range(number)]
    ((does, command),) = commands(*tests)
    assert does == "rerun"
    assert sorted(command.split()) == sorted(f"pytest {told}".split())


def test_of_very_many_problems_the_first_are_told_and_the_others_counted() -> None:
    def failed(number: int) -> Test:
        over = Verdict(limit="max_kernels", outcome="failed", metric="kernels", measured=number)
        kernels = [kernel(f"k{number}", source=f"m.py:{number}")] * number
        return Test(f"t.py::test_{number}", (profile(kernels, verdicts=(over,)),), outcome="failed")

    problems = summary_of(Run(tuple(map(failed, range(1, 6))))).problems
    assert len(problems) == 5
    assert len(tasks_of(problems, 5)) == 5
    *told, left = tasks_of(problems, 3)
    assert len(told) == 3
    assert "2 more" in left.what


@pytest.mark.parametrize(("ratios", "margin"), [((), ""), ((1.02, 1.17), "20%"), ((0.9,), "")])
def test_a_margin_is_advised_where_a_round_in_turn_was_slower(
    ratios: tuple[float, ...], margin: str
) -> None:
    pairs = tuple(TimedPair(None, ratio, 12, 40.0, 40.0 * ratio) for ratio in ratios)
    found = ProfileComparison(source="revision", paired=Paired("same", pairs=pairs))
    open_ = Verdict(limit="against", outcome="undecided", metric="cuda_time", comparison=found)
    test = Test("t.py::test_a", (mlp(verdicts=(open_,)),))
    run = Run((test,), baselines=(RunComparison(source="revision", name="main (abc1234)"),))
    (problem,) = summary_of(run).problems
    again = "compare with main again on a quiet GPU" if margin else "rerun against main"
    assert problem.remedy.again == again
    advised = re.findall(r"kernelprof\(margin='(.*)'\)", problem.remedy.intended)
    assert advised == ([margin] if margin else [])


def test_a_cause_is_told_although_the_first_words_end_in_its_letters() -> None:
    def over(qualifier: str = "") -> Verdict:
        return Verdict(
            limit="max_kernels",
            outcome="failed",
            metric="kernels",
            unit="count",
            qualifier=qualifier,
            measured=2,
            allowed=1,
        )

    kernels = [kernel(name, source=f"m.py:{at}") for at, name in enumerate(("fused_add", "add"))]
    fused = replace(over(), cause=Cause("fused_add", Place("m.py", 1)))
    of_add = replace(over("^add$"), cause=Cause("add", Place("m.py", 9)))
    taken = profile(kernels, verdicts=(fused, of_add))
    (problem,) = summary_of(Run((Test("t.py::t", (taken,), outcome="failed"),))).problems
    (task,) = tasks_of((problem,))
    assert task.what == "max_kernels: 2 > limit 1, max_kernels(match='^add$'): 2 > limit 1"
    assert task.facts == ("fused_add", "add at m.py:9")
