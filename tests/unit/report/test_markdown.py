"""The Markdown of a run, as GitHub renders it: the table of what needs a look, details, what is
cut; hostile names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from gfm_pages import COLUMNS, HOSTILE, Look, Page, rendered
from records import (
    CPU,
    GELU,
    GEMM,
    LINEAR,
    MLP,
    MUL,
    SLOW,
    calls_of,
    held_to,
    kernel,
    mlp,
    of_ranks,
    profile,
    timed,
)

from pytest_kernelprof.kernel_names.short_names import kept_name
from pytest_kernelprof.records.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    SnapshotReport,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Copy, Mismatch, Place, Profile, Verdict, Wait
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.markdown import LIMIT, line, markdown_of, text

NEW = KernelSide(MUL, ("aten::mul",), "src/mlp.py:42", 9.2)
ALLOWED_TAGS = {
    *("h3", "br", "p", "strong", "code", "span", "sub", "wbr"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "b", "pre", "ul", "li"),
}


def over(found: int = 5, allowed: int = 4, **more: object) -> Verdict:
    return Verdict(
        limit="max_kernels",
        outcome="failed",
        metric="kernels",
        unit="count",
        measured=found,
        allowed=allowed,
        **more,  # type: ignore[arg-type]
    )


KEPT = Verdict(
    limit="max_kernels", outcome="passed", metric="kernels", unit="count", measured=5, allowed=5
)
UNDECIDED = Verdict(
    limit="max_cuda_time",
    outcome="undecided",
    reason="interval",
    metric="cuda_time",
    unit="us",
    measured=199.4,
    allowed=200.0,
    low=199.1,
    high=200.3,
    rounds=96,
)
WHY_UNDECIDED = "too close to the limit to call: -0.3 %, 96 rounds"
FEWER = "Launch fewer kernels (fuse them, torch.compile)"
LOST = Verdict(limit="max_kernels", outcome="incomplete", why="17 of 18 launches have their kernel")


def delta(name: str, old: float, new: float) -> MetricDelta:
    change = "worse" if new > old else "better"
    return MetricDelta(name=name, baselines=(old,), current=new, change=change, judged=True)  # type: ignore[arg-type]


KEPT_NAME = KernelSide(kept_name(MUL), ("aten::mul",), "mlp.py:42")
SNAPSHOT = ProfileComparison(
    source="snapshot",
    change="worse",
    kernels=KernelDiff(
        baseline_kernels=4,
        current_kernels=5,
        changes=(KernelChange("added", current=KEPT_NAME, at=2, positions=(2,)),),
    ),
    metrics=(delta("kernels", 4, 5),),
)


def broken(name: str = "test_mlp.py::test_broken", **more: object) -> Test:
    return Test(name, (mlp(timed("cuda_time", [234.9]), verdicts=(over(), *more.get("also", ()))),))  # type: ignore[misc]


def page_of(*tests: Test, **more: object) -> Page:
    return rendered(markdown_of(Run(tests, **more)))  # type: ignore[arg-type]


def commands_of(page: Page) -> list[str]:
    """What commands do, which stand above details."""
    return [one for one in page.texts("strong") if re.match(r"[A-Z].*:$", one)]


MAIN = RunComparison(source="revision", name="main (abc1234)")


def compared(test: str, old: int, new: int, ratio: float = 1.0, **more: Any) -> ProfileComparison:
    pairs = tuple(TimedPair(None, ratio + i / 1000, 12, 100.0, 100.0 * ratio) for i in range(4))
    came = (KernelChange("added", current=NEW, at=1, positions=(1,)),) if new > old else ()
    facts: dict[str, Any] = {
        "change": "worse" if new > old else "better" if new < old else "same",
        "kernels": KernelDiff(
            baseline_kernels=old,
            current_kernels=new,
            baseline_us=100.0,
            current_us=100.0 * ratio,
            changes=came,
        ),
        "metrics": (delta("kernels", old, new),) if new != old else (),
        "paired": Paired(
            "same", ratio=ratio, pairs=pairs, baseline_us=100.0, current_us=100.0 * ratio
        ),
        **more,
    }
    return ProfileComparison(source="revision", test=test, **facts)


def against_main(found: ProfileComparison, *verdicts: Verdict, **more: Any) -> Test:
    return Test(found.test, (held_to(mlp(verdicts=verdicts), found),), **more)


def test_all_well_is_three_lines() -> None:
    well = mlp(timed("cuda_time", [100]), verdicts=(KEPT,))
    found = markdown_of(Run((Test("t.py::test_it", (well,)),)))
    heading, *_ = found.split("\n")
    assert heading == "### ✅ kernelprof: 1 of 1 test is within its limits"
    page = rendered(found)
    assert page.texts("p") == [
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0 · 1 profile · 5 kernels, 100.0us on the GPU"
    ]
    assert page.tables == []


def test_a_run_without_profiles_is_no_success() -> None:
    assert markdown_of(Run()).startswith("### kernelprof: No test has a profile\n")


def test_where_nothing_was_judged_nothing_is_well() -> None:
    tests = (Test("t.py::test_it", (mlp(),)),)
    assert markdown_of(Run(tests)).startswith(
        "### kernelprof: No test has a limit, 1 test has a profile\n"
    )
    same = against_main(compared("t.py::test_it", 5, 5))
    assert markdown_of(Run((same,), baselines=(MAIN,))).startswith("### ✅ ")


def test_a_run_that_was_ended_says_so() -> None:
    well = Test("t.py::test_it", (mlp(verdicts=(KEPT,)),))
    page = page_of(well, unfinished=("interrupted: @me <b>",))
    assert page.text.startswith("⚠️ ")
    assert "Unfinished: tests may be missing: interrupted: @\u200cme <b>." in page.text


def test_one_row_for_each_test_worst_first_with_what_is_wrong() -> None:
    page = page_of(
        Test("b/test_b.py::test_undecided", (mlp(verdicts=(KEPT, UNDECIDED)),)),
        Test(
            "b/test_b.py::test_lost",
            (calls_of(1, verdicts=(LOST,), integrity=Integrity(problems=("17 of 18",))),),
            outcome="error",
        ),
        Test("a/test_a.py::test_kept", (mlp(verdicts=(KEPT,)),)),
        broken("a/test_a.py::TestIt::test_broken[a-1]"),
        Test("a/test_a.py::test_fails", (mlp(),), outcome="failed"),
    )
    undecided = "max_cuda_time undecided: 199.1..200.3us, limit 200.0us in test_undecided"
    ran = "nvjet 256x128x64 TNT x3 / vectorized_elementwise [gelu] / vectorized_elementwise [mul]"
    assert page.tables == [
        [
            COLUMNS,
            [
                *(
                    "❌",
                    f"max_kernels: 5 > limit 4 in TestIt::test_broken[a-1] / a/test_a.py / {ran}",
                ),
                f"{FEWER} / If intended, allow max_kernels(5) at "
                "a/test_a.py::TestIt::test_broken[a-1]",
            ],
            ["❌", "no number: 17 of 18 in test_lost / b/test_b.py", "Run these tests alone"],
            ["❌", "failed for another reason in test_fails / a/test_a.py", ""],
            [
                *("⚠️", f"{undecided} / b/test_b.py / {WHY_UNDECIDED}"),
                "Take more rounds / If it stays undecided, allow max_cuda_time('210us') "
                "(5 % to spare) at b/test_b.py::test_undecided",
            ],
        ]
    ]
    assert page.texts("h3")[0].startswith("❌ kernelprof: 1 of ")


def test_what_to_do_comes_first_then_the_kernels_of_the_test() -> None:
    test = broken("a/test_a.py::test_broken[a|1]")
    found = markdown_of(Run((test,)))
    table, details, block, again, end, facts = found.split("\n\n")[1:]
    name = "<code>test&#95;broken&#91;a&#124;1&#93;</code>"
    what = f"**max_kernels: 5&nbsp;> limit&nbsp;4** in {name}"
    why = (
        "nvjet 256x128x64 TNT x3",
        "vectorized_elementwise \\[gelu\\]",
        "vectorized_elementwise \\[mul\\]",
    )
    place = "a/test_a.py::test_broken\\[a\\|1\\]"  # where the line of the test is not known
    todo = f"{FEWER}<br>If intended, allow `max_kernels(5)` at {place}"
    assert table.split("\n") == [
        *("| | what is wrong | to do |", "|:-:|---|---|"),
        f"| ❌ | {'<br>'.join([what, '`a/test_a.py`', *why])} | {todo} |",
    ]
    command = ["```sh", "pytest 'a/test_a.py::test_broken[a|1]'", "```"]
    assert again.split("\n") == ["**Rerun:**", *command]
    assert "pytest 'a/test_a.py::test_broken[a|1]'\n" in rendered(found).raw_texts("code")
    assert (
        details
        == "<details open><summary>Kernels and commands of <b>test_broken[a|1]</b></summary>"
    )
    assert block.startswith("```text\n")
    assert block.endswith("\n```")
    assert end == "</details>"
    assert facts.startswith("<sub>NVIDIA H200, torch ")


def test_each_of_several_rows_has_its_commands_and_details_below_the_table() -> None:
    slow = msgspec.structs.replace(
        over(250, 200), limit="max_cuda_time", metric="cuda_time", unit="us"
    )
    one = Test("a/test_a.py::test_slow", (calls_of(1, verdicts=(slow,)),), outcome="failed")
    found = markdown_of(Run((one, broken("b/test_b.py::test_broken"))))
    above, *below = re.split("\n<details(?: open)?>", found)
    heading, table = above.rstrip("\n").split("\n\n")
    assert heading == "### ❌ kernelprof: 2 of 2 tests break a limit"
    _, _, *rows = table.split("\n")
    for row, named in zip(
        rows,
        (
            "**max_cuda_time: 250.0us&nbsp;> limit&nbsp;200.0us** in `test_slow`<br>`a/test_a.py`",
            "**max_kernels: 5&nbsp;> limit&nbsp;4** in `test_broken`<br>`b/test_b.py`",
        ),
        strict=True,
    ):
        assert row.startswith(f"| ❌ | {named}<br>")
        assert "<br>If intended, allow " in row
    assert len(below) == 2
    for details, name in zip(below, ("test_slow", "test_broken"), strict=True):
        told = details.partition("\n<sub>")[0].rstrip("\n").split("\n\n")
        head, block, again, end = told
        assert again.startswith("**Rerun:**\n```sh\npytest ")
        assert head == f"<summary>Kernels and commands of <b>{name}</b></summary>"
        assert block.startswith("```text\n")
        assert end == "</details>"


def test_one_cause_is_told_as_several_are() -> None:
    names = [f"Memcpy DtoH (Device -> {kind})" for kind in ("Pageable", "Pinned")]
    copied = [Copy(name, "d2h", 4, 1.0, ()) for name in names]
    limit = msgspec.structs.replace(over(1, 0), limit="max_memcpys", metric="memcpys")
    for copies, told in (
        (copied[:1], (f"copied 4 B: {names[0]}",)),
        (copied, (f"copied 8 B: {names[0]}", names[1])),
    ):
        test = Test("t.py::test_it", (calls_of(1, copies=tuple(copies), verdicts=(limit,)),))
        found = markdown_of(Run((test,)))
        (look,) = rendered(found).looks()
        assert (look.todo, look.whys) == ("Copy less often", told)


def test_commands_stand_at_the_end_of_the_details_of_their_problem() -> None:
    taken = SnapshotReport(file="t.py", device="H", key="k", accepts=True)
    new = Test("t.py::test_new", (held_to(mlp(), SNAPSHOT),), outcome="failed", snapshot=taken)
    found = markdown_of(Run((broken("t.py::test_a"), broken("t.py::test_b"), new)))
    page = rendered(found)
    accept = "To accept in a snapshot, if intended:"
    both, new_alone = page.folds
    assert (both.commands, new_alone.commands) == (["Rerun:"], ["Rerun:", accept])
    assert [one for one in page.raw_texts("pre") if one.startswith("pytest ")] == [
        "pytest t.py::test_a t.py::test_b\n",
        "pytest t.py::test_new\n",
        "pytest t.py::test_new --kernelprof-update\n",
    ]
    heading, table, first, *_ = found.split("\n\n")
    assert heading.startswith("### ")
    assert table.startswith("| | what is wrong |")
    assert first.startswith("<details><summary>")
    assert "\n\n**Rerun:**\n```sh\npytest t.py::test_a t.py::test_b\n```\n\n</details>" in found
    assert " --kernelprof-update" not in table
    assert "If intended, accept it in the snapshot |" in table


def test_one_line_of_small_print_has_comparisons_notes_and_the_machine() -> None:
    bases = (
        msgspec.structs.replace(MAIN, profiles=(), notes=("# main is old", "@me, </sub>")),
        RunComparison(source="run", name="old.json", notes=("- none",)),
    )
    page = page_of(against_main(compared("t.py::test_it", 5, 5), KEPT), baselines=bases)
    (facts,) = page.texts("sub")
    assert page.texts("p") == [facts]
    against, *notes, last = facts.split(" / ")
    assert against.startswith("against main (abc1234): 1 unchanged; same number of kernels; ")
    assert notes == [
        "# main is old",
        "@me, </sub>",
        "against old.json: nothing was compared",
        "- none",
    ]
    assert last.startswith("NVIDIA H200, torch ")
    assert not page.notified
    assert page.unclosed == []


def test_what_changed_and_needs_no_look_is_a_list_in_a_fold() -> None:
    gone = KernelDiff(
        baseline_kernels=5,
        current_kernels=4,
        changes=(KernelChange("removed", baseline=NEW, at=1),),
    )
    tests = (
        against_main(compared("t.py::test_a", 5, 4, kernels=gone, paired=None), KEPT),
        against_main(compared("u/t.py::test_b[*-1]", 5, 3, paired=None), KEPT),
        against_main(compared("t.py::test_same", 5, 5), KEPT),
    )
    found = markdown_of(Run(tests, baselines=(MAIN,)))
    before, _, below = found.partition("<details>")
    assert "<sub>" not in before
    title, *lines, end, empty, last, _ = below.split("\n")
    assert (title, end) == ("<summary><b>Also changed:</b> 2 better</summary>", "</details>")
    assert (empty, last[:5]) == ("", "<sub>")
    assert [one[:2] for one in lines] == ["", "- ", "- ", ""]
    assert lines[1] == "- ✅ `t.py::test_b[*-1]`: better: kernels 5 -> 3"
    page = rendered(found)
    assert page.texts("li") == [
        "✅ t.py::test_b[*-1]: better: kernels 5 -> 3",
        "✅ t.py::test_a: better: kernels 5 -> 4; "
        "kernel gone: vectorized_elementwise [mul] at mlp.py:42",
    ]
    assert page.items() == []


def test_a_cause_without_a_line_has_that_of_the_call() -> None:
    exceeded = msgspec.structs.replace(over(180, 100), limit="max_latency", metric="latency")
    called = mlp(verdicts=(exceeded,), place=Place("test_a.py", 24))
    (item,) = page_of(Test("test_a.py::test_it", (called,))).items()
    assert item.startswith("❌ test_a.py:24 max_latency: 180 > limit 100")


def test_a_long_command_is_whole() -> None:
    tests = [Test(f"a/test_a.py::test_{i * 200}", outcome="failed", why="no") for i in "abc"]
    found = markdown_of(Run(tuple(tests)))
    table, again, *_ = found.split("\n\n")[1:]
    assert "\n| ❌ | **no** (3 tests)<br>`a/test_a.py`<br>test_" in table
    a, b, c = (one.id for one in tests)
    block = ["```sh", f"pytest {a} \\", f"  {b} \\", f"  {c}", "```"]
    assert again.split("\n") == ["**Rerun:**", *block]


def test_tests_with_equal_words_share_a_line() -> None:
    tests = [Test(f"a/test_a.py::test_{i}", outcome="failed", why="no") for i in "abc"]
    (look,) = page_of(*tests).looks()
    assert look.whys == ("test_a, test_b, test_c",)


def test_below_the_table_one_command_stands_for_all_problems_without_details() -> None:
    over_both = (calls_of(2, verdicts=(over(2, 1),)),)
    tests = [Test("t.py::test_2", over_both, outcome="failed")]
    tests += [Test(f"t.py::test_{n}", outcome="failed", why=f"no {n * 'x'}") for n in (3, 4)]
    page = page_of(*tests)
    assert len(page.looks()) == 3
    assert "rerun" not in " ".join(page.items())
    assert commands_of(page) == ["Rerun:", "Rerun:"]
    others, own = [one for one in page.raw_texts("pre") if one.startswith("pytest ")]
    assert own == "pytest t.py::test_2\n"
    assert others == "pytest t.py::test_3 t.py::test_4\n"


def test_details_have_the_copies_that_a_limit_fails_by() -> None:
    copy = Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4, 1.0, ("aten::copy_",))
    limit = msgspec.structs.replace(over(1, 0), limit="max_memcpys", metric="memcpys")
    page = page_of(Test("t.py::test_it", (mlp(copies=(copy,), verdicts=(limit,)),)))
    block, _ = page.raw_texts("pre")
    assert "Memcpy DtoH (Device -> Pageable)" in block
    assert "vectorized_elementwise" not in block
    assert page.texts("summary") == ["Kernels and commands of test_it"]


def test_details_have_the_waits_copies_and_kernels_that_limits_fail_by() -> None:
    wait = Wait("cudaStreamSynchronize", ("aten::item",), "t.py:7")
    copy = Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4, 1.0, ("aten::copy_",))
    waits = msgspec.structs.replace(over(2, 0), limit="max_syncs", metric="syncs")
    copies = msgspec.structs.replace(over(2, 0), limit="max_memcpys", metric="memcpys")
    many = calls_of(1, waits=(wait, wait), copies=(copy, copy))
    for verdicts, told in (
        ((waits, copies), ["waits in", "copy"]),  # of which no kernel tells
        ((waits, copies, over(1, 0)), ["waits in", "copy", "kernel"]),
    ):
        one = msgspec.structs.replace(many, verdicts=verdicts)
        page = page_of(Test("t.py::test_it", (one,)))
        assert page.texts("summary") == ["Kernels and commands of test_it"]
        block, _ = page.raw_texts("pre")
        heads = [re.split(" {2,}", one) for one in re.findall("^ *# .*$", block, re.M)]
        assert [next(name for name in head if name in told) for head in heads] == told


def test_one_cause_in_many_tests_is_told_once() -> None:
    tests = [broken(f"t.py::test_{i}") for i in range(12)]
    page = page_of(*tests)
    (item,) = page.items()
    head, _, names, *told = item.split(" / ")
    assert head == "❌ t.py max_kernels: 5 > limit 4 (12 tests)"
    assert names == "test_0, test_1, test_2, test_3, and 8 more"
    assert told[0] == "nvjet 256x128x64 TNT x3"
    assert item.count("nvjet 256x128x64 TNT x3") == 1
    assert page.texts("summary") == ["Kernels and commands of 12 tests"]
    assert told[-1] == "test_0:"
    _kernels, command = page.raw_texts("pre")
    assert command == "pytest t.py\n"


def test_of_one_cause_each_test_that_has_other_words_says_them() -> None:
    counts = {"a": 5, "b": 5, "c": 6}
    tests = [
        against_main(compared(f"t.py::test_{name}", 4, 5), over(count), outcome="failed")
        for name, count in counts.items()
    ]
    (item,) = page_of(*tests, baselines=(MAIN,)).items()
    told = item.split(" / ")
    assert "test_a, test_b: max_kernels: 5 > limit 4 (was 4 in main)" in told
    assert "test_c: max_kernels: 6 > limit 4 (was 4 in main)" in told


def test_of_several_profiles_of_a_test_the_first_has_its_name_above_its_kernels() -> None:
    profiles = tuple(mlp(label=label, verdicts=(over(),)) for label in ("cold", "warm"))
    (fold,) = page_of(Test("t.py::test_it", profiles, outcome="failed")).folds
    assert fold.title == "Kernels and commands of test_it [cold]"
    assert [one for one in fold.told if one.endswith(":")] == ["test_it [cold]:"]


def test_each_cause_of_a_test_is_told_once() -> None:
    names = Verdict(
        limit="expect_kernels",
        outcome="failed",
        measured=5,
        mismatch=Mismatch(5, 5, "mul", ("aten::mul",), ("gelu",)),
    )
    asked_anew = over(1, 0)
    asked_anew = msgspec.structs.replace(asked_anew, limit="max_allocations", metric="allocations")
    test = Test("test_mlp.py::test_broken", (calls_of(5, verdicts=(over(), names, asked_anew)),))
    page = page_of(test)
    (item,) = page.items()
    got = "expect_kernels: kernel 5: expected 'gelu', got mul (aten::mul)"
    assert item.startswith(
        f"❌ test_mlp.py max_kernels: 5 > limit 4, {got}, 1 more in test_broken / "
    )
    assert item.count("kernel 5: expected 'gelu', got mul (aten::mul)") == 1
    assert item.count("max_allocations: 1 > limit 0") == 1
    assert item.count("1 > limit 0") == 1


def test_a_baseline_is_exceeded_in_one_place_with_all_its_counts() -> None:
    metrics = (*SNAPSHOT.metrics, delta("launches", 4, 6))
    more = held_to(mlp(), msgspec.structs.replace(SNAPSHOT, metrics=metrics))
    page = page_of(Test("t.py::test_it", (more,), outcome="failed"))
    (item,) = page.items()
    head, _, counts, *_ = item.split(" / ")
    assert head.endswith("added kernel: vectorized_elementwise [mul] in test_it")
    assert counts == "snapshot: kernels 4 -> 5, launches 4 -> 6"
    assert page.text.count("4 → ") == 2


def test_details_unfold_with_the_kernels() -> None:
    lined = [msgspec.structs.replace(one, source="mlp.py:42") for one in MLP]
    page = page_of(Test("t.py::test_broken", (profile(lined, verdicts=(over(),)),)))
    assert page.texts("summary") == ["Kernels and commands of test_broken"]
    block, _ = page.raw_texts("pre")
    legend, titles, *kernels = block.splitlines()
    assert legend == "  kernels (> launched most often):"
    assert titles.startswith("  #    us  kernel ")
    assert [line[:3] for line in kernels] == ["> 1", "  2", "> 3", "  4", "> 5"]
    assert page.unclosed == []


def test_of_a_snapshot_the_details_are_a_diff() -> None:
    kernels = [kernel(GEMM, *LINEAR), kernel(MUL, "aten::mul", source="mlp.py:42")]
    test = Test("t.py::test_it", (held_to(profile(kernels), SNAPSHOT),))
    page = page_of(test)
    (item,) = page.items()
    assert item.split(" / ")[2] == "snapshot: kernels 4 -> 5"
    block, _ = page.raw_texts("pre")
    assert block.splitlines()[0] == "  against the snapshot: + new"
    (new,) = [line for line in block.splitlines() if line.startswith("+")]
    assert "vectorized_elementwise [mul]" in new
    assert "--kernelprof-update" not in page.text
    taken = SnapshotReport(file="t.py", device="H", key="k", accepts=True)
    told = page_of(msgspec.structs.replace(test, snapshot=taken)).text
    assert "pytest t.py::test_it --kernelprof-update" in told


def test_signs_of_kernels_that_came_and_went_are_seen_in_a_list() -> None:
    sides = [KernelSide(kept_name(one), ()) for one in (GELU, MUL)]
    changes = (KernelChange("removed", sides[0]), KernelChange("added", current=sides[1], at=4))
    kernels = KernelDiff(baseline_kernels=5, current_kernels=5, changes=changes)
    found = ProfileComparison(source="snapshot", change="changed", kernels=kernels)
    report = SnapshotReport(file="t.py", device="H", key="k", state="changed", changes=changes)
    page = page_of(Test("t.py::test_it", (held_to(mlp(), found),), snapshot=report))
    (look,) = page.looks()
    assert look.whys == (
        "- vectorized_elementwise [gelu]",
        "+ vectorized_elementwise [mul]",
        "snapshot: other kernels, same number",
    )


def test_where_no_kernel_is_known_what_came_is_told_alone() -> None:
    test = Test("t.py::test_it", (held_to(calls_of(0), SNAPSHOT),), outcome="failed")
    block, _ = page_of(test).raw_texts("pre")
    assert block.splitlines() == [
        "  against the snapshot: + new",
        "  kernel                        line       launched by",
        "+ vectorized_elementwise [mul]  mlp.py:42  aten::mul",
        "",
        "  kernels of one call:",
        "  no kernels were launched",
    ]


def test_what_changed_against_a_revision() -> None:
    tests = (
        against_main(compared("t.py::test_same", 5, 5)),
        against_main(compared("t.py::test_better", 5, 3, 0.89)),
        against_main(compared("t.py::test_broken", 4, 5, 1.039), over(), outcome="failed"),
    )
    why = "the baseline cannot run it: no such test @there"
    new = compared(
        "t.py::test_new", 5, 5, paired=None, kernels=None, change="not compared", reason=why
    )
    page = page_of(*tests, baselines=(msgspec.structs.replace(MAIN, profiles=(new,)),))
    (facts,) = page.texts("sub")  # that it is worse, the heading says
    assert facts.split(" / ") == [
        f"not compared: t.py::test_new: {why}",
        "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0 · 3 profiles",
    ]
    assert f"{why.replace('@', '@' + chr(0x200C))}" in page.text
    wrong = "max_kernels: 5 > limit 4 (was 4 in main)"
    item, *_ = page.items()
    head = "❌ mlp.py:42 added kernel: vectorized_elementwise [mul] in test_broken"
    assert item == f"{head} / Remove the added kernel, or fuse it (torch.compile) / {wrong}"
    (look,) = page.looks()
    assert look.intended == (
        "If intended, allow max_kernels(5) at t.py::test_broken, and run with "
        "--kernelprof-warn-only (all tests only warn) until main has this change"
    )
    assert page.texts("strong")[-1] == "Rerun against main:"
    assert page.texts("li")[-1] == (
        "✅ t.py::test_better: better: GPU time -11.0..-10.7 %; kernels 5 -> 3"
    )
    assert page.texts("summary") == [
        "Kernels and commands of test_broken",
        "Also changed: 1 better",
    ]
    table, _ = page.raw_texts("pre")
    assert table.startswith("  against main (abc1234): + new\n")
    assert any(line.startswith("+ 1 ") for line in table.splitlines())


def test_what_is_only_slower_than_a_revision_is_told_by_its_times() -> None:
    pairs = tuple(TimedPair(None, 1.1, 12, 100.0, 110.0) for _ in range(4))
    slower = Paired("worse", "", 1.1, pairs=pairs, agreeing=4, baseline_us=100.0, current_us=110.0)
    found = compared("t.py::test_it", 5, 5, change="worse", paired=slower)
    page = page_of(against_main(found, outcome="failed"), baselines=(MAIN,))
    (item,) = page.items()
    head = "❌ t.py worse than main: GPU time +10.0 %, margin 0 % in test_it"
    sure = "mean of 4 interleaved pairs, all beyond the margin; medians 100.0us -> 110.0us"
    assert item == f"{head} / Undo the change / {sure}"  # the heading has the share
    assert page.text.count("+10.0 %") == 1
    assert page.texts("summary") == ["Kernels and commands of test_it"]
    block, _ = page.raw_texts("pre")
    assert block.startswith("against main (abc1234):\n")


@pytest.mark.parametrize("change", ["worse", "undecided"])
def test_a_margin_is_allowed_at_the_line_of_one_test(change: Literal["worse", "undecided"]) -> None:
    pairs = tuple(TimedPair(None, 1.08, 12, 100.0, 108.0) for _ in range(4))
    times = Paired(change, "", 1.08, pairs=pairs, agreeing=4, baseline_us=100.0, current_us=108.0)

    def intended(*names: str) -> str:
        found = [compared(f"t.py::{one}", 5, 5, change=change, paired=times) for one in names]
        ends = "failed" if change == "worse" else "passed"
        tests = [against_main(one, outcome=ends, place=Place("t.py", 12)) for one in found]
        page = page_of(*tests, baselines=(MAIN,))
        assert any(
            "against main" in one or "with main again" in one for one in page.texts("strong")
        )
        return page.looks()[0].intended

    end = " until main has this change" if change == "worse" else ""
    assert intended("test_a").endswith(f", allow kernelprof(margin='10%') at t.py:12{end}")
    if change == "worse":  # which is one problem of both; of undecided tests each is its own
        assert intended("test_a", "test_b").endswith(f", allow kernelprof(margin='10%'){end}")


def test_of_several_tests_a_limit_has_the_count_of_the_revision_beside_it() -> None:
    tests = [
        against_main(compared(f"t.py::test_{name}", 4, 5), over(), outcome="failed")
        for name in "ab"
    ]
    (item,) = page_of(*tests, baselines=(MAIN,)).items()
    words = "max_kernels: 5 > limit 4 (was 4 in main)"
    assert f" / test_a, test_b: {words} / " in f"{item} / "
    assert "worse than main" not in item


@pytest.mark.parametrize("problems", [1, 2, 17])
def test_all_problems_are_rows_and_their_details_stand_one_below_the_other(problems: int) -> None:
    numbers = range(1, problems + 1)
    page = page_of(*(at_lines(at, at, name=f"test_{at:02}").tests[0] for at in numbers))
    assert page.unclosed == []
    assert [(one.where, one.what) for one in page.looks()] == [
        (f"mlp.py:{at}", f"max_kernels: 2 > limit 1 in test_{at:02}") for at in numbers
    ]
    assert [(one.title, one.depth, one.opened) for one in page.folds] == [
        (f"Kernels and commands of test_{at:02}", 0, problems == 1) for at in numbers
    ]


@pytest.mark.parametrize("problems", [1, 20])
def test_a_problem_of_which_nothing_more_is_known_has_no_details(problems: int) -> None:
    tests = [
        Test(f"t.py::test_{at}", outcome="failed", why=f"no {at * 'x'}") for at in range(problems)
    ]
    page = page_of(*tests)
    assert len(page.looks()) == problems
    assert page.folds == []


def test_one_command_below_the_table_updates_all_snapshots() -> None:
    missing = SnapshotReport(file="t.py", device="H", key="k", state="missing")
    tests = [
        Test(f"t.py::test_{at}", (calls_of(at),), snapshot=one)
        for at, one in ((1, missing), (2, msgspec.structs.replace(missing, device="B")))
    ]
    page = page_of(*tests)
    assert [(one.title, one.told, one.commands) for one in page.folds] == [
        (f"Kernels of test_{at}", [], []) for at in (1, 2)
    ]
    assert commands_of(page) == ["To update outdated or missing snapshots:"]
    command, *_kernels = page.raw_texts("pre")
    assert command.split() == ["pytest", "t.py::test_1", "t.py::test_2", "--kernelprof-update"]


def test_what_has_no_kernels_to_show_has_its_command_below_the_table() -> None:
    page = page_of(Test("t.py::test_it", (mlp(verdicts=(UNDECIDED,)),)))
    assert page.folds == []
    assert page.looks()[0].whys == (WHY_UNDECIDED,)
    assert commands_of(page) == ["Take more rounds:"]
    assert page.raw_texts("pre") == ["pytest t.py::test_it --kernelprof-rounds=192\n"]


EXPOSED = msgspec.structs.replace(
    over(40, 30), limit="max_exposed_comm", metric="exposed_comm", unit="us"
)


@pytest.mark.parametrize("tests", [1, 2, 5])
@pytest.mark.parametrize(("verdict", "ranks"), [(over(3, 2), False), (EXPOSED, True)])
def test_of_a_time_the_ranks_stand_below_the_kernels_of_the_first_test(
    tests: int, verdict: Verdict, ranks: bool
) -> None:
    profiles = [msgspec.structs.replace(of_ranks(*SLOW), verdicts=(verdict,)) for _ in range(tests)]
    names = [f"test_{at}" for at in range(tests)]
    page = page_of(*(Test(f"t.py::{n}", (p,)) for n, p in zip(names, profiles, strict=True)))
    (fold,) = page.folds
    block, _command = page.raw_texts("pre")
    kernels, _, table = block.partition("\n\n")
    assert kernels.lstrip().startswith("kernels of rank 0")
    assert table.lstrip().startswith("rank ") is ranks
    named = [one for one in fold.told if re.fullmatch(r"test_\d:", one)]
    assert named == ["test_0:"] * (tests > 1)


def test_where_only_something_got_better_the_change_is_told() -> None:
    page = page_of(against_main(compared("t.py::test_it", 5, 3), KEPT), baselines=(MAIN,))
    assert page.text.startswith("✅")
    assert page.texts("li") == ["✅ t.py::test_it: better: GPU time +0.0..+0.3 %; kernels 5 -> 3"]
    assert page.texts("summary") == ["Also changed: 1 better"]


@pytest.mark.parametrize(("words", "whole"), [("model.py:17: x", True), ("model.py:100: x", False)])
def test_a_line_of_code_can_be_copied_unless_github_has_an_emoji_of_its_number(
    words: str, whole: bool
) -> None:
    assert ("\u200c" not in text(words)) is whole


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_seen_as_they_are_and_do_nothing(name: str) -> None:
    odd = kernel(f"{name} {GELU}", name, us=5.0, source=f"{name}.py:3")
    bad: Profile = profile(
        [kernel(GEMM, *LINEAR), odd], label=name, verdicts=(over(2, 1, qualifier=name),)
    )
    id = f"{name}.py::test_it[{name}]"
    side = KernelSide(odd.name, odd.operators, odd.source, 9.2)
    diff = KernelDiff(
        baseline_kernels=1, current_kernels=2, changes=(KernelChange("added", current=side),)
    )
    changed = compared(id, 1, 2, label=name, kernels=diff, paired=None)
    base = RunComparison(source="revision", name=name)
    test = Test(id, (held_to(bad, changed),), outcome="failed")
    fewer = compared(f"{name}.py::test_less[{name}]", 2, 1, label=name, paired=None)
    less = against_main(fewer)
    page = page_of(test, less, baselines=(base,), unfinished=(name,))
    assert page.tags <= ALLOWED_TAGS
    assert page.unclosed == []
    assert not page.notified
    assert [len(one) for one in page.tables[0]] == [3, 3]
    (look,) = page.looks()
    assert look.sign == "❌"
    assert line(f"{name}.py") in look.where or len(name) > 20
    assert look.todo == "Remove the added kernel, or fuse it (torch.compile)"
    assert look.intended.startswith("If intended, allow max_kernels(2")
    *_, listed = page.texts("li")
    assert listed.startswith("✅ ")
    assert line(f"test_less[{name}]") in listed or len(name) > 20
    (item,) = page.items()
    assert line(f"test_it[{name}]") in item or len(name) > 20


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_not_break_the_table(name: str) -> None:
    """Also where they are all of a cell, and in details of several tests."""
    crash = Test(f"t.py::test_a[{name}]", outcome="failed", why=f"KeyError: {name}")
    tests = [broken(f"t.py::test_{one}[{name}]") for one in "bc"]
    end = Test("u.py::test_end", outcome="failed", why="no")
    page = page_of(crash, *tests, end)
    assert page.tags <= ALLOWED_TAGS
    assert page.unclosed == []
    assert not page.notified
    (table,) = page.tables
    assert [len(one) for one in table] == [3] * 4
    several, first, last = page.looks()
    assert (several.sign, several.what) == ("❌", "max_kernels: 5 > limit 4 (2 tests)")
    assert (several.todo, several.intended) == (FEWER, "If intended, allow max_kernels(5)")
    assert last == Look("❌", "u.py", "no in test_end", "")
    assert (first.sign, first.where, first.todo) == ("❌", "t.py", "")
    named = line(f"test_a[{name}]")
    assert first.what.startswith("KeyError: ") or not name
    assert first.what.endswith(f" in {named}")
    (_, fold), *_ = page.details()
    assert fold is not None
    assert fold.title == "Kernels and commands of 2 tests"
    assert several.whys[0] == line(f"test_b[{name}], test_c[{name}]")
    assert fold.told[-1] == f"{line(f'test_b[{name}]')}:"


def test_long_names_in_the_table_may_break_where_their_words_end() -> None:
    name = f"test_{'of_a_long_name_' * 5}"
    run = at_lines(7, 7, file=f"{'some_long_module_name_' * 2}.py", name=name)
    found = markdown_of(run)
    row = next(one for one in found.splitlines() if one.startswith("| ❌ |"))
    words = [one for cell in row.split(" | ") for one in re.split("<wbr>| ", cell)]
    assert max(len(Page(one).text) for one in words) <= 33
    (look,) = rendered(found).looks()
    assert look.where == f"{'some_long_module_name_' * 2}.py:7"
    assert look.what == f"max_kernels: 2 > limit 1 in {name}"
    assert "<wbr>" not in markdown_of(at_lines(7, 7))


@pytest.mark.bulk
def test_names_of_100_kb_are_bounded() -> None:
    long = "x<|`" * 25_000
    test = Test(f"{long}.py::test_{long}", (mlp(label=long, verdicts=(over(qualifier=long),)),))
    found = markdown_of(Run((test,)))
    assert len(found.encode()) < 40_000
    assert rendered(found).unclosed == []


@dataclass
class Many:
    """Tests enough that not all have room."""

    tests: int = 3000

    def run(self) -> Run:
        tests = (broken(f"t.py::test_{i:04}") for i in range(self.tests))
        held = tuple(
            msgspec.structs.replace(
                test, profiles=(held_to(test.profiles[0], self.found(i, test)),)
            )
            for i, test in enumerate(tests)
        )
        return Run(held, baselines=(MAIN,))

    def found(self, i: int, test: Test) -> ProfileComparison:
        """Each has another cause."""
        side = KernelSide(MUL, ("aten::mul",), f"src/mlp.py:{i}", 9.2)
        diff = KernelDiff(
            baseline_kernels=4,
            current_kernels=5,
            changes=(KernelChange("added", current=side, at=1, positions=(1,)),),
        )
        return compared(test.id, 4, 5, kernels=diff)


@pytest.mark.parametrize(("tests", "limit"), [(3000, LIMIT), (300, 20_000), (3, 2500)])
@pytest.mark.bulk
def test_it_is_cut_where_it_matters_least(tests: int, limit: int) -> None:
    found = markdown_of(Many(tests).run(), limit)
    assert len(found.encode()) <= limit
    page = rendered(found)
    assert page.unclosed == []
    (told,) = [text for text in page.texts("p") if text.startswith("and ")]
    assert told.endswith("left out for their size.")
    commands = [one for one in page.raw_texts("pre") if one.startswith("pytest ")]
    named = [one.split()[1:-1] for one in commands if "--kernelprof-against=main" in one]
    left = {f"t.py::test_{i:04}" for i in range(tests)} - {one[0] for one in named[:-1]}
    # The last one is for all whose details are left out.
    assert named[-1] == (["t.py"] if len(left) > 8 else sorted(left))
    if " task" in told:  # then nothing that matters less is there
        assert page.folds == []
    shown = [one[0] for one in map(re.compile(r"test_\d+").findall, page.items()) if one]
    assert shown == [f"test_{i:04}" for i in range(len(shown))]
    assert len(shown) >= 3


def test_on_the_cpu_there_are_operators() -> None:
    page = page_of(Test("t.py::test_it", (calls_of(2, environment=CPU, verdicts=(KEPT,)),)))
    assert "2 operators on the CPU" in page.text


def test_a_cause_does_not_repeat_what_stands_beside_it() -> None:
    copy = Copy("Memcpy DtoH (Device -> Pageable)", "d2h", 4, 1.0, ())
    exceeded = msgspec.structs.replace(
        over(1, 0), limit="max_memcpys", metric="memcpys", qualifier="d2h"
    )
    copied = mlp(copies=(copy,), verdicts=(exceeded,))
    page = page_of(Test("t.py::test_it", (copied,), outcome="failed"))
    (item,) = page.items()
    assert item.count("max_memcpys") == 1
    assert item.count("copied 4 B: Memcpy DtoH (Device -> Pageable)") == 1
    assert item.startswith("❌ t.py max_memcpys(d2h): 1 > limit 0 in test_it / ")


def linked(place: Place) -> str:
    """Where lines of the sources lead to; tests have no address."""
    return f"https://x/{place.file}#L{place.line}" if place.file == "mlp.py" else ""


CALL = Place("test_mlp.py", 3)


def at_lines(*lines: int, call: Place = CALL, file: str = "mlp.py", name: str = "test_it") -> Run:
    kernels = [kernel(MUL, "aten::mul", source=f"{file}:{line}") for line in lines]
    broken = profile(kernels, verdicts=(over(len(lines), 1),), place=call)
    return Run((Test(f"test_mlp.py::{name}", (broken,), outcome="failed"),))


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlp.py", "test_mlp.py", "other.py"):
        (tmp_path / name).write_text("".join(f"x{i} = {name!r}\n" for i in range(1, 31)))
    monkeypatch.chdir(tmp_path)


def parts_of(run: Run) -> tuple[list[str], list[str]]:
    """The cells of the one row, and what stands in its details before the kernels."""
    told = markdown_of(run, link=linked).split("\n\n")
    row = told[1].split("\n")[2]
    assert row.startswith("| ❌ | ")
    begin = next(at for at, one in enumerate(told) if one.startswith("<details open>"))
    end = next(at for at, one in enumerate(told) if one.startswith("```text\n"))
    return row[2:-2].split(" | ")[1:], told[begin + 1 : end]


@pytest.mark.parametrize(
    ("lines", "link"),
    [
        ((21, 21), "[mlp.py:21](https://x/mlp.py#L21)"),
        ((21, 22), "[mlp.py:21](https://x/mlp.py#L21)<br>[mlp.py:22](https://x/mlp.py#L22)"),
    ],
)
def test_each_line_leads_to_itself(lines: tuple[int, ...], link: str) -> None:
    (what, _), _ = parts_of(at_lines(*lines))
    wrong, told = what.split("<br>", 1)
    assert wrong.startswith("**max_kernels: ")
    assert told.startswith(f"{link}<br>vectorized_")


def test_lines_without_an_address_are_code() -> None:
    (what, _), _ = parts_of(at_lines(21, 22, file="other.py"))
    assert what.split("<br>")[1:3] == ["`other.py:21`", "`other.py:22`"]


def test_places_of_causes_and_advice_lead_to_lines_that_have_an_address_and_else_are_code() -> None:
    kernels = [kernel(MUL, "aten::mul", source="mlp.py:21")] * 2
    kernels += [kernel(GELU, "aten::gelu", source="other.py:25")]
    broken = profile(kernels, verdicts=(over(3, 1),), place=CALL)
    for place, allowed_at in (
        (Place("mlp.py", 9), "[mlp.py:9](https://x/mlp.py#L9)"),
        (Place("test_mlp.py", 9), "`test_mlp.py:9`"),
    ):
        test = Test(
            "test_mlp.py::test_it",
            (broken,),
            outcome="failed",
            limits=("max_kernels",),
            place=place,
        )
        (what, todo), _ = parts_of(Run((test,)))
        assert what.split("<br>")[1:] == [
            "[mlp.py:21](https://x/mlp.py#L21)",
            "vectorized_elementwise \\[mul\\] x2, launched most often",
            "vectorized_elementwise \\[gelu\\] at `other.py:25`",
        ]
        assert todo == f"{FEWER}<br>If intended, allow `max_kernels(3)` at {allowed_at}"


def same_names(lines: int) -> str:
    """Of a test with kernels at one line of two files of one name, and at more lines."""
    kernels = [kernel(MUL, "aten::mul", source=f"{folder}/m.py:21") for folder in "ab"]
    kernels += [kernel(GELU, "aten::gelu", source=f"a/m.py:{25 + at}") for at in range(lines - 2)]
    verdicts = (over(lines, 1),)
    test = Test("t.py::test_it", (profile(kernels, verdicts=verdicts),), outcome="failed")
    return markdown_of(Run((test,)), link=lambda place: f"https://x/{place.file}#L{place.line}")


def test_lines_of_two_files_of_one_name_lead_to_their_own() -> None:
    urls = re.findall(r"<br>\[m.py:\d+\]\((.*?)\)", same_names(3))
    assert urls == ["https://x/a/m.py#L21", "https://x/b/m.py#L21", "https://x/a/m.py#L25"]


def test_of_which_file_of_one_name_a_cause_tells_nobody_knows() -> None:
    (row,) = [line for line in same_names(5).splitlines() if line.startswith("| ❌ |")]
    assert "m.py:21" in row
    assert "#L21" not in row
    assert "(https://x/a/m.py#L25)" in row


@pytest.mark.usefixtures("sources")
def test_the_code_of_three_lines_is_shown_below_each_that_has_an_address() -> None:
    for lines in ((21, 21), (21, 22), (21, 22, 23, 24)):
        page = rendered(markdown_of(at_lines(*lines), link=linked))
        (look,) = page.looks()
        assert look.where == ", ".join(f"mlp.py:{at}" for at in dict.fromkeys(lines))
        assert look.code == tuple(f"x{at} = 'mlp.py'" for at in dict.fromkeys(lines[:3]))
        assert look.whys == (f"vectorized_elementwise [mul] x{len(lines)}",)
        assert page.unclosed == []
    assert " = 'mlp.py'" not in markdown_of(at_lines(21, 22))
    assert " = 'other.py'" not in markdown_of(at_lines(21, 22, file="other.py"), link=linked)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_is_seen_as_it_is_and_does_not_break_the_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = f"x = 1  # {' '.join(name.split())}.".encode(errors="replace").decode()
    (tmp_path / "mlp.py").write_text(f"\n{code}\n", encoding="utf-8")
    page = rendered(markdown_of(at_lines(2, 2), link=linked))
    assert page.tags <= {*ALLOWED_TAGS, "a"}
    assert page.unclosed == []
    assert not page.notified
    (look,) = page.looks()
    assert look.code == (line(code),)


@pytest.mark.usefixtures("sources")
def test_the_line_of_the_call_is_not_shown() -> None:
    call = Place("mlp.py", 3)
    assert "x3 =" not in markdown_of(at_lines(3, 3, call=call), link=linked)
    assert "x4 =" in markdown_of(at_lines(4, 4, call=call), link=linked)
