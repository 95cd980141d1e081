"""Replace what measures in a run of pytest: it hands out what a scenario describes.

All else is the plugin's own: markers, fixtures, verdicts, outcomes, reports, files. ``played``
lists all that is replaced: the measurement of a call and of a comparison, whether there is a GPU,
its lock, and the revision's files, process and timed rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

from described import Call, Contest, Described, Launched, Scenario
from msgspec.structs import replace
from traces import Recorded, as_rank, record

from pytest_kernelprof.analysis.collectives import with_waiting
from pytest_kernelprof.analysis.session_profile import compiled_profile
from pytest_kernelprof.baselines import revision
from pytest_kernelprof.baselines.protocol import NO_SUCH_TEST, Collected, Done
from pytest_kernelprof.baselines.revision import Revision
from pytest_kernelprof.baselines.timing import Timed
from pytest_kernelprof.baselines.worker import Interpreter
from pytest_kernelprof.comparison.judge import Difference
from pytest_kernelprof.distributed.agreement import ALONE, Agreement
from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.measure import callables
from pytest_kernelprof.measure.runner import Measurement
from pytest_kernelprof.plugin import against_revision, fixture, measuring
from pytest_kernelprof.profiler import triton_targets
from pytest_kernelprof.records.comparison import TimedPair
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Kernel, Profile
from pytest_kernelprof.stats import intervals

Side = Literal["calls", "snapshot", "earlier"]

NO_GPU = "no CUDA device: torch sees none"
REVISION = "main (abc1234)"
OTHER = Interpreter("/old/bin/python", (Difference("triton", "3.4.0", "3.6.0"),))


@contextmanager
def played(scenario: Scenario, folder: Path, side: Side = "calls") -> Iterator[None]:
    """Have pytest measure one side of a scenario, inside of the with block.

    Args:
        folder: where traces are written.
    """
    play = _Play(scenario, folder, side)
    patches: list[tuple[object, str, object]] = [
        (measuring.runner, "measure", play.measure),
        (measuring, "compile_call", play.compile),
        (triton_targets, "Targets", _Idle),
        (fixture, "contest", play.contest),
        (inventory, "why_no_gpu", lambda: "" if scenario.gpu else NO_GPU),
        (inventory, "usual_kind", lambda: "cuda" if scenario.gpu else "cpu"),
        (inventory, "usual_kind_untouched", lambda: "cuda" if scenario.gpu else "cpu"),
        (inventory, "cuda_is_up", lambda: False),
        (inventory, "current_device", _device),
        (inventory, "refuse_broken", lambda: None),
        (inventory, "why_broken", lambda: ""),
        (revision, "find", lambda *_: Revision(REVISION, str(folder / "project"))),
        (revision, "root_of", lambda *_: str(folder / "project")),
        (revision, "lay_out", lambda *_: ()),
        (revision, "lay_over", lambda *_: ()),
        (revision, "copy_generated", lambda *_: ((), ())),
        (against_revision.worker, "interpreter_at", lambda *_: OTHER),
        (against_revision.worker, "Reference", _Idle),
        (against_revision.timing, "FreshPairs", _Idle),
        (against_revision, "Turns", play.turns),
    ]
    with mock.patch.multiple(usage_lock, begin=_nothing, end=_nothing):
        started = [mock.patch.object(where, name, new) for where, name, new in patches]
        for one in started:
            one.start()
        try:
            yield
        finally:
            for one in reversed(started):
                one.stop()


def _nothing(*_: object) -> None:
    pass


def _device(kind: str) -> inventory.Device:
    if kind == "cpu":
        return inventory.Device("cpu", 0, "CPU (x86_64)", "", 0, {})
    return inventory.Device("cuda", 0, "NVIDIA H200", "sm_90", 0, {})


class _Idle:
    """Workers of the revision that are never started; and what stands for GPUs."""

    brings_up = "run"
    standing_in = staticmethod(nullcontext)

    def __init__(self, *_: object, **__: object) -> None:
        self.come_up = self.end = self.leave = self.finish = self.refuse = _nothing
        self.answer: Callable[[], Done | str] = str

    def collect(self, *_: object) -> Collected:
        return Collected()


def _escaped(node_id: str) -> str:
    """A node id as pytest has it."""
    return node_id.encode("unicode_escape").decode()


class _Play:
    """The calls of one run, in the order in which its tests make them."""

    def __init__(self, scenario: Scenario, folder: Path, side: Side) -> None:
        self.tests = {_escaped(test.id): test for test in scenario.tests}
        self._folder = folder
        self._side = side
        self._taken: Counter[str] = Counter()

    def measure(
        self, call: object, plan: Any, arguments: object, *, label: str = "", **_: object
    ) -> tuple[None, Measurement]:
        """The next call of the test that is running."""
        test = self.tests[plan.who]
        sides = getattr(test, self._side) or test.calls
        number = self._taken[plan.who]
        self._taken[plan.who] += 1
        return None, _measurement(sides[number % len(sides)], self._folder, label)

    def compile(self, test: Any, fn: object, arguments: object, request: Any) -> None:
        """The next call of a test whose kernels are compiled: the same for each target."""
        (call,) = self.tests[test.id].calls
        launches = [
            [
                Kernel(
                    *(one.name, 0.0, (64, 1, 1), (128, 1, 1), one.registers, one.shared_memory),
                    *(0, 0, "unknown", (), one.at),
                    spills=one.spills,
                )
            ]
            for one in call.kernels
        ]
        for target in test.settings.targets:
            found = compiled_profile(target, launches, {"triton": "3.6.0"}, call.ended)
            test.ledger.keep_record(replace(found, label=target), request)

    def contest(self, callables: object, plan: Any, *_: object, metric: Any, **__: object) -> Any:
        """The rounds of the callables that the test compares."""
        described = self.tests[plan.who].compares
        assert described is not None
        return _DescribedContest(described, plan, metric, self._folder)

    def turns(self, reference: _Idle, *_: object, **__: object) -> _Turns:
        turns = _Turns(self.tests, self._folder)
        reference.answer = turns.answer
        return turns


def _measurement(call: Call, folder: Path, label: str) -> Measurement:
    one = recorded(call, folder)
    attributed = replace(one.attributed, label=label)
    profile = replace(one.profile, label=label)
    if call.ranks:
        profile = _of_ranks(call, folder, label)
        attributed = replace(profile)
    return Measurement(
        profile=profile,
        file=SimpleNamespace(path=str(one.path)),  # type: ignore[arg-type]
        recording=one.recording,
        timeline=lambda: one.timeline,
        attribute=lambda: attributed,
        more=SimpleNamespace(),  # type: ignore[arg-type]
        agreement=_Agreed(call, folder) if call.ranks else ALONE,
    )


class _Agreed(Agreement):
    """The other ranks of a described call, which want what this one wants."""

    rank = 0

    def __init__(self, call: Call, folder: Path) -> None:
        self.others = [recorded(one, folder) for one in call.ranks]

    def gather(self, what: str, own: Any, **_: object) -> Any:
        others = (one.timeline if what == "the timeline" else own for one in self.others)
        return (own, *others)


def _of_ranks(call: Call, folder: Path, label: str) -> Profile:
    of_all = (call, *call.ranks)
    profiles = [
        as_rank(replace(recorded(one, folder).attributed, label=label), rank)
        for rank, one in enumerate(of_all)
    ]
    first, *others = with_waiting(profiles)
    return replace(first, other_ranks=tuple(others))


@cache
def recorded(call: Call, folder: Path) -> Recorded:
    """The trace of a call; calls that are alike have one."""
    number = len(list(folder.glob("call-*.json")))
    return record(call, folder / f"call-{number}.json")


class _DescribedContest(callables.Contest):
    """Rounds that are there already; of further ones the same again."""

    def __init__(self, described: Contest, plan: Any, metric: Any, folder: Path) -> None:
        profiles = {
            name: recorded(_call_of(described, name, us), folder).profile
            for name, us in described.rounds_us.items()
        }
        *_, reference = described.rounds_us
        agree = "results agree (relative norm 0.00021)", "not checked for remembered results"
        checks = {name: agree for name in profiles if name != reference}
        nobody: Any = None
        super().__init__(
            *(nobody, plan, metric, reference, {}, profiles, nobody, nobody), checks=checks
        )
        self._given = described.rounds_us
        self.take(0)

    def take(self, pairs: int) -> None:
        for name, us in self._given.items():
            self._series[name] += us


def _call_of(described: Contest, name: str, us: tuple[float, ...]) -> Call:
    number = described.kernels.get(name, 1)
    kernel = Launched(f"{name}_kernel", ("aten::mul",), "", 10.0)
    return Call(kernels=(kernel,) * number, gpu_us=us)


class _Turns:
    """The revision's answers, and how its times compare."""

    def __init__(self, tests: dict[str, Described], folder: Path) -> None:
        self.timed: dict[str, Timed] = {}
        self._tests = tests
        self._folder = folder
        self.test = ""

    def begin(self, test: str, *_: object) -> None:
        self.test = test
        self.timed.clear()

    def set_up(self) -> None:
        pass

    def answer(self) -> Done | str:
        calls = self._tests[self.test].in_turn
        if calls is None:
            return NO_SUCH_TEST
        labels = ["", *(f"profile {number}" for number in range(2, len(calls) + 1))]
        profiles = tuple(
            replace(recorded(call, self._folder).attributed, label=label)
            for label, call in zip(labels, calls, strict=False)
        )
        return Done(self.test, Test(self.test, profiles), reached=("model.py",))

    def after_call(self, test: Any, call: Any) -> None:
        described = self._tests[test.id]
        number = len(test.ledger) - 1
        sides = described.in_turn or ()
        if number < len(sides) and sides[number].pairs:
            old = recorded(sides[number], self._folder).profile
            new = recorded(described.calls[number], self._folder).profile
            self.timed[call.profile.label] = _timed(sides[number].pairs, old, new)


def _timed(ratios: tuple[float, ...], old: Profile, new: Profile) -> Timed:
    """The timing of a call in so many pairs of processes, by the ratio of each pair."""
    firsts: tuple[Any, ...] = ("current", "baseline")
    old_us = sum(one.duration_us for one in old.kernels)
    taken = [
        TimedPair(firsts[i % 2], ratio, intervals.TURNS, old_us, old_us * ratio)
        for i, ratio in enumerate(ratios)
    ]
    found = intervals.decide(taken, intervals.margin_for(old_us))
    timing = replace(found, change=found.change or "undecided")
    scale = found.ratio if len(old.kernels) == len(new.kernels) else 1.0
    before = tuple(one.duration_us for one in old.kernels)
    now = tuple(one.duration_us * scale for one in new.kernels)
    return Timed(timing, kernels_us={"baseline": before, "current": now})
