"""Work that starts on other threads when a call has returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Event, annotation, copy, kernel, launched, operator, profile_of, round_of
from built import call as host_call

ADD, VIEW = "aten::add", "aten::view"
ON_CPU = {"schema": 1, "device_kind": "cpu", "compute_operators": [ADD]}
ON_GPU = {"schema": 1, "device_kind": "cuda"}
ROUNDS = [round_of(0, 0, 100), round_of(1, 200, 100)]


def problems(folder: Path, events: list[Event | list[Event]], **noted: object) -> tuple[str, ...]:
    return profile_of(folder, *ROUNDS, *events, kernelprof=noted).integrity.problems


@pytest.mark.parametrize(
    "event",
    [
        operator(ADD, 10, 5, tid=2),  # inside of a round
        operator(ADD, 150, 5, tid=1),  # on the thread that measures, which is in our hands
        operator(VIEW, 150, 5, tid=2),  # computes nothing
        annotation(ADD, 150, 5, tid=2),
    ],
)
def test_what_is_counted_or_nothing_is_not_late(tmp_path: Path, event: Event) -> None:
    assert problems(tmp_path, [event], **ON_CPU) == ()


@pytest.mark.parametrize("at", [-50, 101, 150, 199, 301, 1000])
def test_operators_of_other_threads_outside_of_the_rounds_are_late(
    tmp_path: Path, at: float
) -> None:
    (problem,) = problems(tmp_path, [operator(ADD, at, 0.5, tid=2)], **ON_CPU)
    assert problem.startswith("1 operators or launches started outside of the calls, on other thr")
    assert "(aten::add)" in problem
    assert "wait for it inside the call" in problem


def test_what_began_inside_of_a_round_belongs_to_it(tmp_path: Path) -> None:
    outer = operator("outer", 90, 50, tid=2)
    assert problems(tmp_path, [outer, operator(ADD, 120, 5, tid=2)], **ON_CPU) == ()


def test_what_a_setup_does_on_other_threads_is_not_the_calls(tmp_path: Path) -> None:
    setup = annotation("kernelprof::setup", 110, 60)
    assert problems(tmp_path, [setup, operator(ADD, 150, 5, tid=2)], **ON_CPU) == ()
    assert problems(tmp_path, [setup, operator(ADD, 180, 5, tid=2)], **ON_CPU) != ()
    theirs = annotation("kernelprof::setup", 110, 60, tid=2)
    assert problems(tmp_path, [theirs, operator(ADD, 150, 5, tid=2)], **ON_CPU) != ()


def test_of_several_setups_any_may_be_the_one_that_work_lies_in(tmp_path: Path) -> None:
    spans = [(105, 60), (110, 5), (180, 5), (310, 20)]
    setups = [annotation("kernelprof::setup", at, lasts) for at, lasts in spans]
    for at, late in (
        (104, True),
        (112, False),
        (150, False),
        (170, True),
        (183, False),
        (320, False),
    ):
        found = problems(tmp_path, [setups, operator(ADD, at, 1, tid=2)], **ON_CPU)
        assert (found != ()) == late, at


def test_launches_and_copies_of_other_threads_outside_of_the_rounds_are_late(
    tmp_path: Path,
) -> None:
    late = [
        launched("late", 150, 1, tid=2),
        [host_call("cudaMemcpyAsync", 320, 2, tid=2), copy("Memcpy DtoH", 330, 2)],
    ]
    (problem,) = problems(tmp_path, [*late], **ON_GPU)
    assert problem.startswith("2 operators or launches started outside of the calls")
    assert "(cudaLaunchKernel, cudaMemcpyAsync)" in problem


def test_other_calls_and_our_own_launches_are_not_late(tmp_path: Path) -> None:
    ours: list[Event | list[Event]] = [
        launched("flush", 150, 1, tid=1),
        host_call("cudaEventQuery", 160, 5, tid=2),
        [host_call("cudaLaunchKernel", 90, 4, tid=2), kernel("in a round, runs late", 120, 4)],
    ]
    assert problems(tmp_path, ours, **ON_GPU) == ()


def test_what_was_left_at_work_is_named(tmp_path: Path) -> None:
    names = [f"thread '{name}'" for name in "abcd"]
    (problem,) = problems(tmp_path, [], **ON_CPU, left_at_work=names)
    assert problem.startswith(
        "the call returned while thread 'a', thread 'b', thread 'c', ... had work to do; "
    )


def test_a_trace_from_elsewhere_has_no_calls_to_be_late_for(tmp_path: Path) -> None:
    events = [operator(ADD, 10, 5, tid=1), launched("k", 20, 1, tid=2)]
    assert profile_of(tmp_path, *events).integrity.complete


def test_forked_children_are_told_of_and_are_no_problem(tmp_path: Path) -> None:
    integrity = profile_of(tmp_path, *ROUNDS, kernelprof={**ON_CPU, "forks": 2}).integrity
    assert (integrity.forks, integrity.complete) == (2, True)
