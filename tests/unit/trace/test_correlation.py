"""Who caused what: joins by correlation id, by External id, by time, and never across threads."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from built import Event, call, kernel, launched, operator, profile_of, reading_of_events
from corpus import NAMES, reading

from pytest_kernelprof.trace.columns import KERNEL, NO_ID
from pytest_kernelprof.trace.correlation import ancestors, around, nearest, within


def test_an_operator_lies_in_the_innermost_one_around_it(tmp_path: Path) -> None:
    found = reading_of_events(
        tmp_path, operator("outer", 0, 100), operator("middle", 10, 50), operator("inner", 20, 10),
        operator("sibling", 70, 10), operator("later", 200, 10),
    )  # fmt: skip
    names = found.trace.operators.name.tolist()
    chains = {
        names[i]: [names[above] for above in ancestors(found.parent, i)] for i in range(len(names))
    }
    assert chains == {
        "outer": ["outer"],
        "middle": ["middle", "outer"],
        "inner": ["inner", "middle", "outer"],
        "sibling": ["sibling", "outer"],
        "later": ["later"],
    }


@pytest.mark.parametrize("parent_first", [True, False])
def test_of_two_operators_that_start_together_the_longer_is_outside(
    tmp_path: Path, parent_first: bool
) -> None:
    events = [operator("long", 0, 100), operator("short", 0, 50)]
    found = reading_of_events(tmp_path, events if parent_first else events[::-1])
    names = found.trace.operators.name.tolist()
    assert found.parent[names.index("short")] == names.index("long")
    assert found.parent[names.index("long")] == NO_ID


def test_an_operator_of_another_thread_encloses_nothing(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, operator("a", 0, 100, tid=1), operator("b", 10, 10, tid=2))
    assert found.parent.tolist() == [NO_ID, NO_ID]


def test_an_operator_that_ends_when_the_next_begins_does_not_enclose_it(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, operator("a", 0, 10), operator("b", 10, 10))
    assert found.parent.tolist() == [NO_ID, NO_ID]


def test_a_launch_belongs_to_the_operator_of_its_external_id(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        operator("by_id", 0, 100, external_id=3),
        operator("by_time", 20, 60, external_id=4),
        launched("k", 30, 1, external_id=3),
    )
    assert profile.kernels[0].operators == ("by_id",)


@pytest.mark.parametrize(
    "other",
    [operator("other", 0, 10, external_id=3), operator("other", 0, 99, tid=2, external_id=3)],
    ids=["over by then", "of another thread"],
)
def test_an_external_id_names_no_operator_that_does_not_run_then_on_the_thread(
    tmp_path: Path, other: Event
) -> None:
    launch = launched("k", 30, 3, external_id=3)  # as files of 2022 have it: the correlation id
    profile = profile_of(tmp_path, other, operator("around", 20, 60, external_id=4), launch)
    assert profile.kernels[0].operators == ("around",)


def test_a_launch_without_external_id_belongs_to_the_operator_that_runs_then(
    tmp_path: Path,
) -> None:
    profile = profile_of(
        tmp_path,
        operator("outer", 0, 100),
        operator("over", 10, 10),
        operator("of_another_thread", 25, 50, tid=2),
        launched("k", 30, 1),
    )
    assert profile.kernels[0].operators == ("outer",)


def test_a_launch_outside_all_operators_has_none(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, operator("over", 0, 10), launched("k", 30, 1))
    assert profile.kernels[0].operators == ()


def test_correlation_ids_and_external_ids_are_different_numbers(tmp_path: Path) -> None:
    profile = profile_of(
        tmp_path,
        operator("right", 0, 10, external_id=8),
        operator("wrong", 20, 10, external_id=5),
        launched("k", 3, 5, external_id=8),
    )
    assert profile.kernels[0].operators == ("right",)


def test_a_kernel_without_a_recorded_launch_has_no_operators(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, operator("a", 0, 100), kernel("k", 50, 77))
    assert (profile.kernels[0].launch, profile.kernels[0].operators) == ("unknown", ())


def test_events_without_ids_are_not_joined_to_each_other(tmp_path: Path) -> None:
    found = reading_of_events(tmp_path, call("cudaLaunchKernel", 0, -1), kernel("k", 50, -1))
    assert found.call_of_activity.tolist() == [NO_ID]


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"triton_coop"}))
def test_each_recorded_kernel_has_its_launch_before_it_runs(name: str) -> None:
    found = reading(name)
    trace, calls = found.trace, found.call_of_activity
    kernels = trace.activities.kind == KERNEL
    assert (calls[kernels] != NO_ID).all()
    assert (trace.calls.start[calls[kernels]] <= trace.activities.start[kernels]).all()


@pytest.mark.parametrize("seed", range(10))
def test_what_lies_in_something_is_found_in_as_few_steps_as_its_depth_has_digits(seed: int) -> None:
    draw = random.Random(seed)
    parent = np.array([draw.randrange(-1, i) for i in range(200)])
    chosen = np.array([draw.random() < 0.05 for _ in parent])
    chains = [list(ancestors(parent, row)) for row in range(len(parent))]
    outermost = nearest(parent, parent == NO_ID)[:-1]
    assert outermost.tolist() == [above[-1] for above in chains]
    assert within(parent, chosen).tolist() == [chosen[above[1:]].any() for above in chains]
    holding = {row for one in np.flatnonzero(chosen) for row in chains[one][1:]}
    assert set(np.flatnonzero(around(parent, chosen)).tolist()) == holding


def test_operators_may_be_nested_as_deeply_as_they_like() -> None:
    parent = np.arange(-1, 50_000 - 1)
    assert not nearest(parent, parent == NO_ID)[:-1].any()
    assert within(parent, parent == 9).tolist() == [False] * 11 + [True] * (50_000 - 11)
