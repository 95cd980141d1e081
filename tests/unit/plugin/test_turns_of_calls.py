"""When a call takes turns with the reference, and why it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_kernelprof.baselines.protocol import At, RunTest
from pytest_kernelprof.baselines.timing import Timed
from pytest_kernelprof.plugin import against_revision as module
from pytest_kernelprof.plugin.against_revision import Turns
from pytest_kernelprof.records.comparison import Paired

TEST = "t.py::a"
MORE_KERNELS = "more kernels already fail the test"
Asked = tuple[RunTest, float]


class Reference:
    """Holds in calls, one after the other."""

    def __init__(self, *labels: str) -> None:
        self.labels = list(labels)
        self.at: At | None = None
        self.log: list[object] = []

    def begin(self, test: str, following: str, *, holds: bool) -> None:
        self.log.append(holds)
        self.go(holds=holds)

    def go(self, *, holds: bool) -> None:
        self.log.append(holds)
        self.at = At(self.labels.pop(0)) if holds and self.labels else None

    def answer(self) -> str:
        self.at = None
        return "done"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The calls that were timed, each with its margin."""
    found: list[Asked] = []

    def time_call(call: RunTest, work: object, margin: float, *_: object) -> Timed:
        assert (call.id, call.holds, work) == (TEST, True, ("x",))
        found.append((call, margin))
        return Timed(Paired("same"))

    monkeypatch.setattr(module.timing, "time_call", time_call)
    return found


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Paired | None]:
    """What each call that is timed becomes without more pairs; "more" is worse by its counts."""
    found: list[Paired | None] = []

    def time_call(*given: Any) -> Timed:
        found.append(given[-1])
        return Timed(Paired("same"))

    def why_judged(baseline: object, current: Any, **_: object) -> str:
        return MORE_KERNELS if current.label == "more" else ""

    monkeypatch.setattr(module.timing, "time_call", time_call)
    monkeypatch.setattr(module, "why_judged", why_judged)
    return found


def call(label: str = "", why: str = "", *, is_over: bool = False) -> Any:
    more = SimpleNamespace(
        work=lambda result: (result,),
        why_untimed=lambda: why,
        repeated=SimpleNamespace(device=None),
    )
    profile = SimpleNamespace(
        label=label, outcome="failed" if is_over else "passed", verdicts=(), environment=None
    )
    return SimpleNamespace(more=more, result="x", profile=profile)


def of(margin: float | None = None, id: str = TEST, *, warn_only: bool = False) -> Any:
    settings = SimpleNamespace(margin=margin, lock_timeout=1.0, warn_only=warn_only)
    return SimpleNamespace(id=id, settings=settings)


def begun(*labels: str, times: bool = True) -> Any:
    reference: Any = Reference(*labels)
    made = Turns(reference, SimpleNamespace(), times=times)  # type: ignore[arg-type]
    made.begin(TEST, "")
    made.set_up()
    return made


def whys(made: Turns) -> list[str]:
    return [timed.paired.why for timed in made.timed.values()]


def test_each_call_that_the_reference_holds_in_is_timed(asked: list[Asked]) -> None:
    made = begun("", "profile 2")
    for label in ("", "profile 2", "profile 3"):
        made.after_call(of(), call(label))
    assert [one.call for one, _ in asked] == ["", "profile 2"]
    assert whys(made) == ["", "", "the baseline does not make this call"]
    assert made.timed[""].paired.took_s > 0


@pytest.mark.parametrize(("margin", "judged"), [(None, 0.05), (0.08, 0.08)])
def test_the_margin_of_the_test_counts(
    asked: list[Asked], margin: float | None, judged: float
) -> None:
    begun("").after_call(of(margin), call())
    assert asked == [(RunTest(TEST, holds=True, call=""), judged)]


def test_a_call_over_a_limit_of_its_test_is_not_timed(asked: list[Asked]) -> None:
    made = begun("", "profile 2")
    made.after_call(of(), call(is_over=True))
    made.after_call(of(), call("profile 2"))
    assert [one.call for one, _ in asked] == ["profile 2"]
    assert whys(made) == ["the test exceeds a limit of its own", ""]


BY_COUNTS = Paired("not compared", MORE_KERNELS)


def test_after_a_call_that_fails_the_test_no_more_pairs_are_started(
    judged: list[Paired | None],
) -> None:
    """By its counts, or by a limit of the test: what looks slower in a later call is undecided."""
    made = begun("", "more", "profile 3")
    for label in ("", "more", "profile 3"):
        made.after_call(of(), call(label))
    assert judged == [None, BY_COUNTS, Paired("undecided", MORE_KERNELS)]
    made = begun("", "more", "profile 3", "profile 4", "")
    made.after_call(of(), call(is_over=True))
    for label in ("more", "profile 3"):
        made.after_call(of(), call(label))
    assert judged[3:] == [BY_COUNTS, Paired("undecided", MORE_KERNELS)]
    made.begin("t.py::b", "")  # the reference holds in its first call
    made.set_up()
    made.after_call(of(id="t.py::b"), call())
    assert judged[5:] == [None]


def test_a_limit_of_the_test_leaves_a_later_suspicion_undecided(
    judged: list[Paired | None],
) -> None:
    made = begun("", "profile 2")
    made.after_call(of(), call(is_over=True))
    made.after_call(of(), call("profile 2"))
    assert judged == [Paired("undecided", "the test exceeds a limit of its own")]


def test_what_is_only_warned_of_fails_no_test(judged: list[Paired | None]) -> None:
    made = begun("more", "profile 2")
    for label in ("more", "profile 2"):
        made.after_call(of(warn_only=True), call(label, is_over=True))
    assert judged == [BY_COUNTS, None]


def test_a_call_that_the_reference_has_not_come_to_waits_for_no_other(
    asked: list[Asked],
) -> None:
    made = begun("profile 2")
    made.after_call(of(), call(""))
    made.after_call(of(), call("profile 2"))
    assert [one.call for one, _ in asked] == ["profile 2"]


def test_a_test_that_is_repeated_has_no_times(asked: list[Asked]) -> None:
    made = begun("", "profile 2")
    made.after_call(of(), call())
    made.set_up()
    made.after_call(of(), call())
    made.after_call(of(), call("profile 2"))
    assert len(asked) == 1
    assert whys(made) == ["the test was repeated"] * 2


def test_why_a_device_has_no_times_is_told(asked: list[Asked]) -> None:
    made = begun()
    made.after_call(of(), call(why="under MPS"))
    assert whys(made) == ["under MPS"]


def test_without_times_and_for_other_tests_nothing_is_noted(asked: list[Asked]) -> None:
    made = begun("", times=False)
    made.after_call(of(), call())
    other = begun("")
    other.after_call(of(id="t.py::b"), call())
    assert (asked, made.timed, other.timed) == ([], {}, {})
