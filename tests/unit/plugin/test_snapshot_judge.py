"""The snapshots of one test: when more is a failure, and when it could be none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from records import H200, MLP, counted, kernel, mlp, profile

from pytest_kernelprof.baselines import snapshots
from pytest_kernelprof.baselines.snapshots import from_text, kept_of, to_text
from pytest_kernelprof.comparison.judge import made_with
from pytest_kernelprof.errors import SnapshotError
from pytest_kernelprof.plugin.run_snapshots import Snapshots
from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
from pytest_kernelprof.records.comparison import KEPT_COUNTS, KeptTest, SnapshotReport
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.records.recording import Integrity

COUNTED = [counted(name, 0, 0) for name in KEPT_COUNTS if name != "launches"]
FIVE = mlp(*COUNTED)
KEPT = KeptTest((kept_of(FIVE),), made_with(H200))
ENTRY = SnapshotReport(file="test_it.py", device="NVIDIA-H200", key="test_a")
NEWER = replace(H200, versions={**H200.versions, "torch": "2.12.0+cu130"})


def six(**more: object) -> Profile:
    return profile((*MLP, kernel("mine")), COUNTED, **more)  # type: ignore[arg-type]


def checks(kept: KeptTest | None = KEPT, *, strict: bool = False) -> SnapshotJudge:
    return SnapshotJudge(ENTRY, file_of(kept), checks=True, collects=False, strict=strict)


def updates(kept: KeptTest | None = KEPT) -> SnapshotJudge:
    return SnapshotJudge(ENTRY, file_of(kept), checks=False, collects=True, strict=False)


def file_of(kept: KeptTest | None) -> dict[str, KeptTest]:
    return {} if kept is None else {"test_a": kept}


def judged(by: SnapshotJudge, found: Profile) -> tuple[str, str]:
    verdicts = by.verdicts(found)
    by.note(replace(found, verdicts=verdicts))
    return verdicts[0].outcome, verdicts[0].why


LACKING = ", ".join(KEPT_COUNTS[1:-1])
LOST = Integrity(problems=("1 of 6 launches has no kernel",))
COLD = Integrity(cold=("lazy loading",))


@pytest.mark.parametrize(
    ("found", "outcome", "why", "state"),
    [
        (FIVE, "passed", "", "same"),
        (six(), "failed", "", "worse"),
        (six(integrity=LOST), "failed", "", "worse"),
        (
            mlp(*COUNTED, integrity=LOST),
            "incomplete",
            "1 of 6 launches has no kernel",
            "not compared",
        ),
        (six(integrity=COLD, one_shot=True), "not judged", "more, but cold", "not compared"),
        (six(integrity=COLD), "failed", "", "worse"),
        (
            six(environment=NEWER),
            *("not judged", "more, but torch 2.11.0+cu130 -> 2.12.0+cu130", "not compared"),
        ),
        (mlp(*COUNTED, environment=NEWER), "passed", "", "same"),
        (profile(MLP[:4], COUNTED), "passed", "", "changed"),
        (
            mlp(),
            *("incomplete", f"{LACKING} is missing; the snapshot has it", "not compared"),
        ),
        (
            mlp(environment=NEWER),
            "not judged",
            f"{LACKING} is missing; the snapshot has it, but torch 2.11.0+cu130 -> 2.12.0+cu130",
            "not compared",
        ),
    ],
)
def test_how_a_profile_fares(found: Profile, outcome: str, why: str, state: str) -> None:
    one = checks(KeptTest((replace(KEPT.profiles[0], counts={"launches": 5}),), KEPT.made_with))
    assert judged(one, found) == (outcome, why)
    assert one.report().state == state
    assert one.broken() == []


def test_a_kernel_that_needs_more_passes_as_outdated_and_is_named() -> None:
    judge = checks()
    more = profile((replace(MLP[0], registers=255), *MLP[1:]), COUNTED)
    assert judged(judge, more) == ("passed", "")
    told = judge.report()
    assert (told.state, {one.kind for one in told.changes}) == ("changed", {"reconfigured"})


def test_where_snapshots_are_required_what_could_not_fail_does() -> None:
    assert judged(checks(strict=True), six(environment=NEWER)) == ("failed", "")
    cold = checks(strict=True)
    judged(cold, six(integrity=COLD, one_shot=True))
    assert cold.broken() == ["snapshot: not judged: more, but cold"]
    assert cold.broken() == []
    none = checks(None, strict=True)
    assert none.broken() == []  # nothing was profiled
    none.note(FIVE)
    assert none.broken() == ["snapshot: this test has none for NVIDIA-H200"]


@pytest.mark.parametrize(("file", "state"), [({"test_b": KEPT}, "missing"), (None, None)])
def test_a_snapshot_is_missing_where_there_is_a_file_and_something_was_profiled(
    file: dict[str, KeptTest] | None, state: str | None
) -> None:
    one = SnapshotJudge(ENTRY, file, checks=True, collects=False, strict=False)
    assert one.report().state is None
    one.note(FIVE)
    assert one.report().state == state


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
    one = updates()
    assert one.verdicts(found) == ()
    one.note(FIVE)
    one.note(replace(found, label="profile 2"))
    told = one.report()
    assert (told.refused, told.state) == (why, None)
    assert (told.entry is None) == bool(why)


def test_a_test_that_takes_nothing_any_more_is_changed() -> None:
    assert checks().report().state == "changed"


def on_ranks(*profiles: Profile) -> Profile:
    """The same call on several ranks; of the last one, as that one has it."""
    numbered = [replace(one, rank=rank) for rank, one in enumerate(profiles)]
    return replace(numbered[-1], other_ranks=tuple(numbered[:-1]))


def test_ranks_that_launch_the_same_are_kept_once() -> None:
    one = updates(None)
    one.note(on_ranks(FIVE, FIVE, FIVE))
    entry = one.report().entry
    assert entry == KEPT


def test_a_rank_that_launches_something_else_is_kept_beside_and_compared_with_that() -> None:
    first = updates(None)
    first.note(on_ranks(FIVE, six(), FIVE))
    kept = first.report().entry
    assert kept is not None
    assert [one.rank for one in kept.profiles] == [None, 1]
    again = checks(from_text(to_text({"a": kept}))["a"])
    assert judged(again, on_ranks(FIVE, six(), FIVE)) == ("passed", "")
    assert again.report().state == "same"


def test_more_on_one_rank_is_a_failure_that_names_it() -> None:
    one = checks()
    (verdict,) = one.verdicts(on_ranks(FIVE, six(), FIVE))
    assert (verdict.outcome, verdict.ranks) == ("failed", (1,))
    assert verdict.comparison is not None
    assert verdict.comparison.kernels is not None
    assert verdict.comparison.kernels.current_kernels == 6


def test_a_rank_without_a_whole_profile_makes_no_snapshot() -> None:
    one = updates(None)
    one.note(on_ranks(FIVE, mlp(*COUNTED, integrity=LOST)))
    assert one.report().refused == "incomplete"


def test_a_file_that_cannot_be_read_is_read_once_for_all_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def read(path: str) -> None:
        reads.append(path)
        raise SnapshotError("no JSON")

    monkeypatch.setattr(snapshots, "read", read)
    config: Any = SimpleNamespace(rootpath=tmp_path)
    settings: Any = SimpleNamespace(require_snapshots=False, update=False)
    kept = Snapshots(config, settings, None, reports=True).kept  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(SnapshotError, match="no JSON"):
            kept(str(tmp_path / "test_it.py"), "cpu")
    assert len(reads) == 1
