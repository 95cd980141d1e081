"""The snapshots of one test: when more is a failure, and when it could be none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records import H200, MLP, counted, kernel, mlp, profile

from pytest_kernelprof.baseline.snapshot_text import from_text, to_text
from pytest_kernelprof.baseline.snapshots import kept_of, made_with
from pytest_kernelprof.plugin.sheet import Entry, Sheet, Wish
from pytest_kernelprof.schema.run import Integrity, Profile
from pytest_kernelprof.schema.snapshot import COUNTS, KeptTest

COUNTED = [counted(name, 0, 0) for name in COUNTS if name != "launches"]
FIVE = mlp(*COUNTED)
KEPT = KeptTest((kept_of(FIVE),), made_with(H200))
NEWER = replace(H200, versions={**H200.versions, "torch": "2.12.0+cu130"})
CHECK = Wish(checks=True, collects=False, strict=False)
STRICT = Wish(checks=True, collects=False, strict=True)
UPDATE = Wish(checks=False, collects=True, strict=False)


def six(**more: object) -> Profile:
    return profile((*MLP, kernel("mine")), COUNTED, **more)  # type: ignore[arg-type]


def sheet(wish: Wish = CHECK, kept: KeptTest | None = KEPT) -> Sheet:
    return Sheet(Entry("", "test_it.py", "NVIDIA-H200", "test_a", kept, True, ()), wish)


def judged(on: Sheet, found: Profile) -> tuple[str, str]:
    verdicts = on.verdicts(found, None)
    on.note(replace(found, verdicts=verdicts))
    return verdicts[0].outcome, verdicts[0].why


LOST = Integrity(problems=("1 of 6 launches has no kernel",))
COLD = Integrity(cold=("lazy loading",))


@pytest.mark.parametrize(
    ("found", "outcome", "why", "state"),
    [
        (FIVE, "kept", "", "held"),
        (six(), "over", "", "over"),
        (six(integrity=LOST), "over", "", "over"),
        (mlp(*COUNTED, integrity=LOST), "incomplete", "1 of 6 launches has no kernel", "held"),
        (six(integrity=COLD, one_shot=True), "not judged", "more, but cold", "not judged"),
        (six(integrity=COLD), "over", "", "over"),
        (
            six(environment=NEWER),
            *("not judged", "more, but torch 2.11.0+cu130 -> 2.12.0+cu130", "not judged"),
        ),
        (mlp(*COUNTED, environment=NEWER), "kept", "", "held"),
        (profile(MLP[:4], COUNTED), "kept", "", "changed"),
        (mlp(), "not judged", ", ".join(COUNTS[1:-1]) + " could not be had", "not judged"),
    ],
)
def test_how_a_profile_fares(found: Profile, outcome: str, why: str, state: str) -> None:
    one = sheet(kept=KeptTest((replace(KEPT.profiles[0], counts={"launches": 5}),), KEPT.made_with))
    assert judged(one, found) == (outcome, why)
    assert one.taken("test").state == state
    assert one.broken() == []


def test_where_snapshots_are_required_what_could_not_fail_does() -> None:
    assert judged(sheet(STRICT), six(environment=NEWER)) == ("over", "")
    cold = sheet(STRICT)
    judged(cold, six(integrity=COLD, one_shot=True))
    assert cold.broken() == ["snapshot: not judged: more, but cold"]
    assert cold.broken() == []
    none = sheet(STRICT, kept=None)
    assert none.broken() == []  # nothing was profiled
    none.note(FIVE)
    assert none.broken() == ["snapshot: there is none of this test for NVIDIA-H200"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (FIVE, ""),
        (mlp(*COUNTED, integrity=COLD), "cold"),
        (mlp(*COUNTED, integrity=LOST), "incomplete"),
        (mlp(*COUNTED, environment=replace(H200, device="NVIDIA A100")), "it ran on NVIDIA A100"),
    ],
)
def test_what_is_kept_and_what_is_not(found: Profile, why: str) -> None:
    one = sheet(UPDATE)
    assert one.verdicts(found, None) == ()
    one.note(FIVE)
    one.note(replace(found, label="profile 2"))
    taken = one.taken("test")
    assert (taken.refused, taken.state) == (why, None)
    assert (taken.entry is None) == bool(why)


def test_a_test_that_takes_nothing_any_more_is_changed() -> None:
    assert sheet().taken("test").state == "changed"


def on_ranks(*profiles: Profile) -> Profile:
    """The same call on several ranks; of the last one, as that one has it."""
    numbered = [replace(one, rank=rank) for rank, one in enumerate(profiles)]
    return replace(numbered[-1], other_ranks=tuple(numbered[:-1]))


def test_ranks_that_launch_the_same_are_kept_once() -> None:
    one = sheet(UPDATE, kept=None)
    one.note(on_ranks(FIVE, FIVE, FIVE))
    entry = one.taken("test").entry
    assert entry == KEPT


def test_a_rank_that_launches_something_else_is_kept_beside_and_compared_with_that() -> None:
    first = sheet(UPDATE, kept=None)
    first.note(on_ranks(FIVE, six(), FIVE))
    kept = first.taken("test").entry
    assert kept is not None
    assert [one.rank for one in kept.profiles] == [None, 1]
    again = sheet(kept=from_text(to_text({"a": kept}))["a"])
    assert judged(again, on_ranks(FIVE, six(), FIVE)) == ("kept", "")
    assert again.taken("test").state == "held"


def test_more_on_one_rank_is_a_failure_that_names_it() -> None:
    one = sheet()
    (verdict,) = one.verdicts(on_ranks(FIVE, six(), FIVE), None)
    assert (verdict.outcome, verdict.ranks) == ("over", (1,))
    assert verdict.snapshot is not None
    assert verdict.snapshot.kernels == 6


def test_a_rank_without_a_whole_profile_makes_no_snapshot() -> None:
    one = sheet(UPDATE, kept=None)
    one.note(on_ranks(FIVE, mlp(*COUNTED, integrity=LOST)))
    assert one.taken("test").refused == "incomplete"
