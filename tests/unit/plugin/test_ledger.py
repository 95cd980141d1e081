"""What is kept of what a test took, and what a conclusion gets of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from records import counted, kernel, mlp, profile

from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.limits.kinds import Limit, parse_keyword, parse_limit
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.measure.runner import Measurement
from pytest_kernelprof.plugin.ledger import MOST_KERNELS, MOST_TRACES, Ledger, with_lines_if
from pytest_kernelprof.plugin.outcome import Conclusion, Request, conclude
from pytest_kernelprof.plugin.settings import Settings
from pytest_kernelprof.profiler.trace_folder import Folder, TraceFile
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Place, Profile, Timeline
from pytest_kernelprof.records.recording import Recording

CALL = Request("kernel_profile")


def limits(**given: Any) -> tuple[Limit, ...]:
    return tuple(parse_keyword(name, value) for name, value in given.items())


def measured(folder: Path, profile: Profile) -> Measurement:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text('{"traceEvents": []}')
    file = TraceFile(Folder(str(path.parent), maker=os.getpid()), path.name)
    return Measurement(profile, file, Recording(schema=1, rounds=2), Timeline)


def ledger(**given: Any) -> Ledger:
    return Ledger(Marks(limits=limits(**given)))


def test_of_very_many_kernels_those_of_the_newest_profiles_are_kept(tmp_path: Path) -> None:
    many = (kernel("k", "aten::add"),) * (MOST_KERNELS // 2 + 1)
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile(many)), CALL)
    old, older, newest = book.profiles
    assert len(newest.kernels) == len(many)
    assert old.kernel_count == older.kernel_count == len(many)
    for dropped in (old, older):
        with pytest.raises(IncompleteProfile, match="dropped"):
            _ = dropped.kernels


def test_kernels_of_other_ranks_go_with_their_profile(tmp_path: Path) -> None:
    many = profile((kernel("k", "aten::add"),) * (MOST_KERNELS // 4 + 1))
    both = replace(many, rank=0, other_ranks=(replace(many, rank=1),))
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, both), CALL)
    ranks = [one.record.ranks for one in book.profiles]
    assert [[len(one.kernels) for one in pair] for pair in ranks[:2]] == [[0, 0]] * 2
    assert not any(one.kernels_kept for one in ranks[0])
    assert [len(one.kernels) for one in ranks[2]] == [len(many.kernels)] * 2


class OfTwo:
    """An agreement of two ranks, of which the other one wants source lines."""

    rank = 0

    def __init__(self) -> None:
        self.broken: list[BaseException] = []

    def gather(self, what: str, own: Any, *, patience_s: float = 0.0) -> tuple[Any, ...]:
        return own, True

    def broke(self, error: BaseException) -> None:
        self.broken.append(error)


def test_an_error_of_the_run_for_lines_hides_no_verdict(tmp_path: Path) -> None:
    agreement: Any = OfTwo()

    def fails() -> Profile:
        raise ValueError("boom")

    found = measured(tmp_path, mlp())._replace(attribute=fails, agreement=agreement)
    assert with_lines_if(False, found) == found.profile
    assert [str(one) for one in agreement.broken] == ["boom"]


class Sends(OfTwo):
    """An agreement of two ranks, of which the other one sends a timeline."""

    def __init__(self, sent: Timeline) -> None:
        super().__init__()
        self.sent, self.own = sent, Timeline()

    def gather(self, what: str, own: Any, *, patience_s: float = 0.0) -> tuple[Any, ...]:
        if what != "the timeline":
            return own, own
        self.own = own
        return own, self.sent


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("blamed", [0, 1])
def test_the_rank_that_breaks_a_limit_sends_its_timeline(
    tmp_path: Path, blamed: int, *, keeps: bool
) -> None:
    """Also if it keeps none for itself: the first rank reports for all."""
    own, other = (Timeline(kind=("kernel",), name=(name,)) for name in ("own", "other"))
    sizes = (2, 1) if blamed == 0 else (1, 2)
    ranks = [profile((kernel("k", "aten::add"),) * n, rank=at) for at, n in enumerate(sizes)]
    both = replace(ranks[0], other_ranks=(ranks[1],))
    agreement: Any = Sends(other if blamed else Timeline())
    found = measured(tmp_path, both)._replace(
        attribute=lambda: replace(both),
        agreement=agreement,
        timeline=lambda: own,
    )
    kept = ledger(max_kernels=1).keep(found, CALL, own if keeps else None).record
    assert agreement.own == (Timeline() if blamed else own)  # only one rank sends its own
    timelines = [own, other if blamed else None] if keeps else [None, None]
    assert [one.timeline for one in kept.ranks] == timelines


class LosesTheOther(OfTwo):
    """An agreement of two ranks, of which the other one does not come for the timeline."""

    def gather(self, what: str, own: Any, *, patience_s: float = 0.0) -> tuple[Any, ...]:
        if what == "the timeline":
            raise TimeoutError("rank 1 did not come")
        return own, own


def test_a_rank_that_does_not_send_its_timeline_hides_no_verdict(tmp_path: Path) -> None:
    one, two = (profile((kernel("k", "aten::add"),) * 2, rank=rank) for rank in (0, 1))
    both = replace(one, other_ranks=(two,))
    agreement: Any = LosesTheOther()
    found = measured(tmp_path, both)._replace(attribute=lambda: replace(both), agreement=agreement)
    kept = ledger(max_kernels=1).keep(found, CALL, Timeline()).record
    assert [verdict.outcome for verdict in kept.verdicts] == ["failed"]
    assert [str(error) for error in agreement.broken] == ["rank 1 did not come"]


def test_timelines_of_old_profiles_go_with_their_kernels(tmp_path: Path) -> None:
    many = ("aten::add",) * (MOST_KERNELS // 2 + 1)
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile((kernel("k"),))), CALL, Timeline(name=many))
    (*old, _), newest = [one.record.timeline for one in book.profiles], book.profiles[-1]
    assert old[0] is None
    assert newest.record.timeline == Timeline(name=many)


def test_the_newest_profile_is_whole_however_large(tmp_path: Path) -> None:
    book = ledger()
    kept = book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS + 1))), CALL)
    assert len(kept.kernels) == MOST_KERNELS + 1


def test_of_very_many_traces_the_newest_are_kept(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(MOST_TRACES + 1):
        book.keep(measured(tmp_path, mlp()), CALL)
    first, *others = book.profiles
    with pytest.raises(IncompleteProfile, match="trace of this profile was deleted"):
        first.save_trace(tmp_path / "saved.json")
    others[0].save_trace(tmp_path / "saved.json")
    assert (tmp_path / "saved.json").exists()
    assert len(first.kernels) == 5


def test_a_limit_that_comes_after_the_kernels_are_gone_is_no_pass(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS // 2 + 1))), CALL)
    book.set_limit(parse_limit("forbid_kernels", ("k",), {}))
    outcomes = [one.verdicts[0].outcome for one in book.records().profiles]
    assert outcomes == ["incomplete", "incomplete", "failed"]


def test_a_limit_on_single_kernels_that_comes_too_late_is_incomplete(tmp_path: Path) -> None:
    book = ledger()
    of = profile((kernel("k"),) * (MOST_KERNELS // 2 + 1), [counted("registers", 32)])
    for _ in range(3):
        book.keep(measured(tmp_path, of), CALL)
    book.set_limit(parse_limit("max_registers", (32,), {}))
    assert [one.verdicts[0].outcome for one in book.records().profiles] == [
        *("incomplete", "incomplete", "passed")
    ]


def test_no_kernels_are_not_seen_where_the_kernels_are_gone(tmp_path: Path) -> None:
    book = ledger()
    for _ in range(3):
        book.keep(measured(tmp_path, profile((kernel("k"),) * (MOST_KERNELS // 2 + 1))), CALL)
    book.set_limit(parse_limit("expect_kernels", (), {}))
    outcomes = [one.verdicts[0].outcome for one in book.records().profiles]
    assert outcomes == ["incomplete", "incomplete", "failed"]


def test_a_limit_that_comes_later_judges_what_was_taken_before(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()), CALL)
    book.set_limit(parse_keyword("max_kernels", 4))
    (one,) = book.records().profiles
    assert [(v.limit, v.outcome) for v in one.verdicts] == [("max_kernels", "failed")]


def test_a_limit_of_its_own_replaces_that_of_the_test_for_one_profile(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    (own,) = limits(max_kernels=5)
    book.keep(measured(tmp_path, mlp()), Request("a region", own={own.key: own}))
    book.keep(measured(tmp_path, mlp()), CALL)
    outcomes = [one.outcome for one in book.records().profiles]
    assert outcomes == ["passed", "failed"]


def test_what_was_concluded_is_not_concluded_again(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    book.keep(measured(tmp_path, mlp()), CALL)
    assert len(book.records().profiles) == 1
    book.keep(measured(tmp_path, mlp()), CALL)
    assert len(book.records().profiles) == 1


def test_a_verdict_knows_the_line_that_made_the_call(tmp_path: Path) -> None:
    book = ledger(max_kernels=4)
    book.keep(measured(tmp_path, mlp()), Request("a call", place=Place("tests/test_mlp.py", 31)))
    conclusion = conclude(book.records(), Test("t.py::test_it"), Settings({}))
    assert "at test_mlp.py:31" in str(conclusion.raises)


def test_markers_that_come_later_do_not_replace_what_was_set(tmp_path: Path) -> None:
    book = ledger()
    book.set_limit(parse_keyword("max_kernels", 5))
    book.marks = Marks(limits=limits(max_kernels=1, max_launches=5))
    book.keep(measured(tmp_path, mlp()), CALL)
    (one,) = book.records().profiles
    assert [v.outcome for v in one.verdicts] == ["passed", "passed"]


def test_a_marker_that_comes_later_replaces_that_of_an_outer_level(tmp_path: Path) -> None:
    book = ledger(max_kernels=5)
    book.keep(measured(tmp_path, mlp()), CALL)
    book.marks = Marks(limits=limits(max_kernels=4))
    (one,) = book.records().profiles
    assert [v.outcome for v in one.verdicts] == ["failed"]


def test_a_promise_that_was_held_with_another_bound_is_not_held() -> None:
    weak, strong = (parse_limit("min_speedup", (n,), {"over": len}) for n in (1, 100))
    book = Ledger(Marks(comparisons=(weak,)))
    book.compared_by.append(weak)
    book.marks = Marks(comparisons=(strong,))
    assert book.records().unheld == ("min_speedup",)


# What is asked for.


def asked_and_raised(book: Ledger, error: type[BaseException], **more: Any) -> None:
    with pytest.raises(error), book.asking(Request("the call", remedy="catch it inside", **more)):
        raise error


def test_what_was_raised_is_named_with_what_was_to_be_judged(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()), CALL)
    (own,) = limits(max_syncs=0)
    asked_and_raised(book, KeyError, own={own.key: own})
    assert str(conclude(book.records(), Test("t.py::test_it"), Settings({})).raises) == (
        "max_kernels, max_syncs was not judged: the call was not measured completely (KeyError "
        "was raised); catch it inside"
    )


def test_it_is_told_once_and_not_where_the_test_has_failed_by_itself() -> None:
    book = ledger(max_kernels=9)
    asked_and_raised(book, KeyError)
    assert book.unconcluded
    assert len(book.records().unfinished) == 1
    assert not book.unconcluded
    asked_and_raised(book, KeyError)
    book.dismiss()
    assert book.records().unfinished == ()


def test_a_limit_that_comes_when_all_is_judged_is_about_it_too(tmp_path: Path) -> None:
    book = ledger(max_kernels=9)
    book.keep(measured(tmp_path, mlp()), CALL)
    assert conclude(book.records(), Test("t.py::test_it"), Settings({})) == Conclusion()
    book.set_limit(*limits(max_kernels=4))
    assert book.unconcluded
    assert str(conclude(book.records(), Test("t.py::test_it"), Settings({})).raises).startswith(
        "max_kernels: 5 > limit 4"
    )
    book.dismiss()
    book.set_limit(*limits(max_kernels=3))
    assert not book.unconcluded


def test_what_ended_well_is_asked_for_no_more() -> None:
    book = ledger(max_kernels=9)
    with book.asking(Request("the call")):
        assert book.unconcluded
    assert book.records().unfinished == ()


def test_a_region_that_nobody_left_was_not_ended_by_anything_raised() -> None:
    book = ledger(max_kernels=9)
    opened = book.asking(Request("region 'r'"))
    opened.__enter__()
    del opened
    (one,) = book.records().unfinished
    assert one.raised == ""
