"""The diff of a profile and its baseline as lines."""

from __future__ import annotations

import msgspec
import pytest
from corpus import record
from msgspec.structs import replace
from records import CPU, GEMM, LINEAR, MLP, counted, kernel, profile

from pytest_kernelprof.baselines.snapshots import kept_of, sides_of
from pytest_kernelprof.comparison.judge import compare_traces
from pytest_kernelprof.comparison.kernel_diff import MOST_CHANGES, diff_sides
from pytest_kernelprof.kernel_names.short_names import kept_name
from pytest_kernelprof.records.comparison import KernelDiff, ProfileComparison, TracesComparison
from pytest_kernelprof.records.profile import Kernel, Profile
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.commands import processes_words
from pytest_kernelprof.report.kernel_tables import (
    change_table,
    diff_lines,
    diff_words,
    metric_lines,
    note_lines,
)

COPY = kernel("void at::native::copy_kernel(int)", "aten::copy_", us=9.2, source="src/train.py:31")


def all_lines(found: ProfileComparison) -> list[str]:
    assert found.kernels is not None
    table = change_table(found.kernels.changes)
    changes = table.lines()[1:] if table.signs else []
    metrics = metric_lines(found, ("kernels", "cuda_time"))
    return [diff_words(found.kernels), *note_lines(found), *changes, *metrics]


def lines(old: Profile, new: Profile) -> list[str]:
    return [" ".join(line.split()) for line in all_lines(compare_traces(old, new))]


def of(*kernels: Kernel) -> Profile:
    return profile(kernels)


def test_what_came_is_told_with_its_time_operators_and_line() -> None:
    assert lines(profile(MLP), profile([*MLP, COPY])) == [
        "5 kernels -> 6, GPU time 50.0us -> 59.2us (+18.4 %).",
        "+ 9.2us copy train.py:31 aten::copy_",
        "launches 5 -> 6",
    ]


def test_another_in_its_place_is_told_on_both_sides() -> None:
    other = kernel(GEMM.replace("256x128", "192x128"), *LINEAR, us=11)
    assert lines(profile(MLP), profile([*MLP[:2], other, *MLP[3:]])) == [
        "5 kernels, some changed, GPU time 50.0us -> 51.0us (+2.0 %).",
        "- 10.0us nvjet 256x128x64 TNT aten::mm in aten::linear",
        "+ 11.0us nvjet 192x128x64 TNT aten::mm in aten::linear",
    ]


def test_what_repeats_is_told_once_with_the_time_of_one() -> None:
    found = lines(profile([*MLP] * 48), profile([*MLP, COPY] * 48))
    assert found[1] == "+ 9.2us copy x48 train.py:31 aten::copy_"
    found = lines(profile([*MLP] * 3), profile([*MLP, COPY, kernel("k")] * 3))
    assert found[1:3] == [
        "+ 9.2us copy x3 (with 1 below) train.py:31 aten::copy_",
        "+ 10.0us k",
    ]


def test_another_time_and_another_grid_are_told_with_both() -> None:
    slow = msgspec.structs.replace(MLP[1], duration_us=14.0)
    wide = msgspec.structs.replace(MLP[3], grid=(4, 2, 1), registers=64)
    found = lines(profile(MLP), profile([MLP[0], slow, MLP[2], wide, MLP[4]]))
    assert found == [
        "5 kernels, unchanged, GPU time 50.0us -> 54.0us (+8.0 %).",
        "~ 10.0us -> 14.0us vectorized_elementwise [gelu] aten::gelu",
        "~ 10.0us -> 10.0us vectorized_elementwise [mul] aten::mul; reconfigured: grid 1x1x1 "
        "-> 4x2x1,",
        "registers 32 -> 64",
    ]


def test_a_kernel_that_begins_to_spill_is_told_with_its_registers() -> None:
    clean = msgspec.structs.replace(MLP[0], registers=128, spills=0)
    spilling = msgspec.structs.replace(MLP[0], registers=255, spills=7_872)
    told = " ".join(lines(profile([clean]), profile([spilling])))
    assert "reconfigured: registers 128 -> 255, spills 0 -> 7872" in told
    unknown = msgspec.structs.replace(spilling, spills=None)
    assert "spills" not in " ".join(lines(profile([clean]), profile([unknown])))


def test_two_of_one_short_name_are_told_apart() -> None:
    old, new = (kernel(f"void f_kernel<{kind}>(int)", "op") for kind in ("int", "long"))
    assert [line.split() for line in lines(of(old), of(new))[1:3]] == [
        ["-", "10.0us", "f", "int", "op"],
        ["+", "10.0us", "f", "long", "op"],
    ]


@pytest.mark.parametrize(("most", "told"), [(0, 0), (3, 3), (10, 10), (40, 10)])
def test_no_more_lines_than_asked_for(most: int, told: int) -> None:
    many = [kernel(f"k{i}", f"op{i}") for i in range(10)]
    changes = compare_traces(of(), of(*many)).kernels
    assert changes is not None
    found = [line.strip() for line in change_table(changes.changes, most=most).lines()]
    assert sum(line.startswith("+") for line in found) == told
    assert (f"... and {10 - most} more lines" in found) == (most < 10)


def test_what_can_not_be_compared_is_said() -> None:
    lost = profile(MLP, integrity=Integrity(("1 of 5 launches has no kernel",)))
    why = "1 of 5 launches has no kernel"
    told = f"INCOMPLETE: kernels that one side lacks may be lost, not removed: {why}"
    assert told in lines(lost, profile(MLP))
    assert told in lines(lost, lost)
    found = lines(profile(MLP), profile(MLP, environment=CPU))
    assert found[1].startswith("times not compared: device NVIDIA H200 -> CPU (x86_64)")
    found = lines(profile(MLP, variants=(MLP[:2],)), profile(MLP))
    assert "compared without order, since rounds differ in the order of kernels" in found


def test_on_the_cpu_operators_are_told_with_what_called_them() -> None:
    mm = kernel("aten::mm", "aten::mm", "aten::linear")
    found = lines(profile([mm], environment=CPU), profile([mm, mm], environment=CPU))
    assert found[:2] == [
        "1 operator -> 2, CPU time 10.0us -> 20.0us (+100.0 %).",
        "+ 10.0us aten::mm aten::linear",
    ]


def test_metrics_that_one_side_has_not_are_no_change() -> None:
    old, new = profile(MLP), profile(MLP, [counted("syncs", 2), counted("kernels", 5, 5)])
    assert lines(old, new)[1:] == []
    assert lines(profile(MLP, [counted("syncs", 0)]), new)[1:] == ["syncs 0 -> 2"]


def test_names_do_nothing_to_a_terminal() -> None:
    evil = kernel("\x1b[2Jk\n", "op\x1b[2J", source="a\x1b.py:1")
    assert all(line.isprintable() for line in all_lines(compare_traces(of(), of(evil))))


def test_nothing_on_either_side_is_a_line() -> None:
    assert lines(of(), of()) == ["0 kernels, unchanged."]


def test_of_other_numbers_of_processes_it_is_said_which_were_compared() -> None:
    one = compare_traces(profile(MLP), profile([*MLP, COPY]))
    assert processes_words(TracesComparison((one, one), 2, 3)) == (
        "2 -> 3 processes: the 2 that both have are compared"
    )
    assert processes_words(TracesComparison((one, one), 2, 2)) == ""


def test_a_recorded_fusion_reads_as_what_it_replaced() -> None:
    found = lines(record("compiled"), record("mlp"))
    assert found[:4] == [
        "4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).",
        "+ 31.9us vectorized_elementwise [gelu] aten::gelu",
        "- 36.7us triton_poi_fused [gelu, mul] Torch-Compiled Region: 0/0",
        "+ 37.2us vectorized_elementwise [mul] aten::mul",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [(3, 5, "of 3 and 5"), (3, 0, "of 3 and 1"), (1, 4, "of 1 and 4"), (1, 0, None)],
)
def test_what_of_traces_with_steps_was_compared(old: int, new: int, words: str | None) -> None:
    same = KernelDiff(baseline_kernels=5, current_kernels=5, baseline_steps=old, current_steps=new)
    found = ProfileComparison(source="trace", kernels=same)
    steps = f"one step of each trace is compared, {words}"
    assert note_lines(found) == ([steps] if words else [])


def test_what_a_diff_does_not_name_is_counted() -> None:
    many = [kernel(f"k{i}", f"op{i}") for i in range(MOST_CHANGES + 7)]
    told = diff_lines(compare_traces(of(), of(*many)))
    more = [f"... and {MOST_CHANGES - 40} more lines", "... and 7 more changes"]
    assert [line.strip() for line in told if line.strip().startswith("...")] == more


def test_where_times_are_not_known_none_is_told() -> None:
    old, new = (sides_of(kept_of(profile(kernels))) for kernels in (MLP, [*MLP, COPY]))
    found = diff_sides(old, new, ordered=True)
    assert [" ".join(line.split()) for line in change_table(found.changes).lines()] == [
        "kernel launched by",
        f"+ {kept_name(COPY.name)} aten::copy_",
    ]


def test_below_a_verdict_nothing_is_told_that_it_says() -> None:
    found = compare_traces(profile(MLP), profile([*MLP, COPY]))
    titles, change, launches = diff_lines(found)
    assert titles.split() == ["time", "kernel", "line", "launched", "by"]
    assert change.split()[:3] == ["+", "9.2us", "copy"]
    assert launches == "launches 5 -> 6"
    worse = tuple(replace(one, change="worse", judged=True) for one in found.metrics)
    assert diff_lines(replace(found, source="run", metrics=worse)) == [titles, change]
    assert diff_lines(compare_traces(profile(MLP), profile(MLP))) == ["5 kernels, unchanged."]
    assert diff_lines(ProfileComparison(source="run", metrics=found.metrics)) == []
