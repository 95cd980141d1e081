"""Whether a call is slower than the revision's: one pair of processes clears it, four convict.

Further pairs are fresh processes, which stay for later calls. Whose CUDA context is made first is
settled by who is brought to a test first: the other one of the pair is started when that has been.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.against.protocol import At, Lost, TooLong
from pytest_kernelprof.against.reference_process import HasProcess, Process, Unusable
from pytest_kernelprof.against.rounds import NoRounds, Order, take_turns
from pytest_kernelprof.schema.paired import Paired, TimedPair
from pytest_kernelprof.stats import pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.against.reference_process import Reference
    from pytest_kernelprof.against.rounds import Alone, Rounds, Taken
    from pytest_kernelprof.schema.paired import Side
    from pytest_kernelprof.schema.run import Conditions

R = TypeVar("R")

_SIDES: tuple[Side, ...] = ("current", "baseline")
_MOST_DEATHS = 2


@dataclass(frozen=True, slots=True)
class Timed:
    """What came of a call whose kernels were to be timed.

    Attributes:
        another_work: how the reference's work differs; empty where it does not.
        baseline_kernels_us, current_kernels_us: of each kernel in launch order what it takes.
    """

    paired: Paired
    another_work: str = ""
    baseline_kernels_us: tuple[float, ...] = ()
    current_kernels_us: tuple[float, ...] = ()


def time_call(
    test: str,
    call: At,
    margin: float,
    current: Rounds,
    reference: Reference,
    further: Further,
    alone: Alone,
) -> Timed:
    """Take turns with the reference, which holds in the same call, and where that makes the call
    suspect, have further pairs do so.

    Args:
        call: of the test, as it was made here. margin: how much slower it may be, a fraction.
        alone: has the GPU alone, and watches it.
    """
    assert reference.at is not None, "it holds"
    other = first_difference(call.work, reference.at.work)
    if other:
        return Timed(not_timed(f"different work: {other}"), other)
    try:
        taken = take_turns(current, reference, alone)
    except NoRounds as error:
        return Timed(not_timed(str(error)))
    pair = taken.pair(reference.first)
    margin = pairs.margin_for(pair.baseline_us, margin)
    found, disturbed, why = [pair], _disturbed([taken]), ""
    if disturbed is None and pairs.decide(found, margin).change is None:
        try:
            more = _further(test, call, pair.first, further, alone)
        except NoRounds as error:
            why = f"no more pairs could be measured: {error}"
        else:
            disturbed = _disturbed([one for one, _ in more])
            found = [pair for pair in (pair, *(two for _, two in more)) if pair.first is not None]
            if _lacking(found):
                why = "it is unknown which process of a pair started first"
    return Timed(
        _paired(found, margin, disturbed, why),
        baseline_kernels_us=taken.baseline[-1].kernels_us,
        current_kernels_us=taken.current[-1].kernels_us,
    )


def not_timed(why: str) -> Paired:
    """A call that was not timed, and why."""
    return Paired("not compared", why)


def first_difference(here: Sequence[str], there: Sequence[str]) -> str:
    """How the work of two sides first differs, in words; empty where it does not."""
    for one, other in zip(here, there, strict=False):
        if one != other:
            place, _, words = one.partition(": ")
            return f"{place} is {words}, in the baseline {other.removeprefix(f'{place}: ')}"
    added = len(here) > len(there)
    more, where = (here, "not in the baseline") if added else (there, "only in the baseline")
    rest = more[min(len(here), len(there)) :]
    return f"{rest[0].partition(': ')[0]} is {where}" if rest else ""


def _further(
    test: str, call: At, first: Side | None, further: Further, alone: Alone
) -> list[tuple[Taken, TimedPair]]:
    """The pairs that make four, in two of which each side was first."""
    known = [first] if first is not None else []
    firsts = _in_turn({side: 2 - known.count(side) for side in _SIDES})
    found = []
    with further.at(firsts, test, call.label) as chosen:
        for pair in chosen:
            for member in pair.members.values():
                at = member.at
                other = first_difference(call.work, at.work) if at is not None else ""
                if other:
                    raise NoRounds(f"a fresh process does different work: {other}")
            taken = take_turns(pair.members["current"], pair.members["baseline"], alone)
            found.append((taken, taken.pair(pair.first)))
    return found


def _in_turn(wanted: dict[Side, int]) -> list[Side]:
    """So many of each side, the one with more of them first, in turn."""
    order = sorted(_SIDES, key=lambda side: -wanted[side])
    return [side for i in range(max(wanted.values())) for side in order if i < wanted[side]]


def _lacking(found: Sequence[TimedPair]) -> bool:
    firsts = [pair.first for pair in found]
    return any(firsts.count(side) < 2 for side in _SIDES)


def _paired(
    found: Sequence[TimedPair], margin: float, disturbed: Conditions | None, why: str
) -> Paired:
    paired = pairs.decide(found, margin) if found else Paired(margin=margin)
    if why or disturbed is not None or paired.change is None:
        return replace(paired, change="undecided", why=why, disturbed=disturbed)
    return paired


def _disturbed(taken: Sequence[Taken]) -> Conditions | None:
    """The conditions of turns on which no verdict can stand."""
    return next((one.conditions for one in taken if one.conditions.disturbed), None)


class Member(HasProcess):
    """One process of such a pair.

    Args:
        start: starts a process.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        super().__init__()
        self._start = start
        self._ids: tuple[str, ...] | None = None

    @property
    def is_there(self) -> bool:
        """Whether it has been started and is not gone."""
        return self._process is not None

    @property
    def cuda(self) -> bool:
        """Whether CUDA is up in it."""
        return self._process is not None and self._process.cuda

    def come_up(self) -> None:
        """Start it, if it is not there, and do not wait for it.

        Raises:
            NoRounds: it cannot be started.
        """
        if self._process is not None:
            return
        if self._deaths >= _MOST_DEATHS:
            raise NoRounds(f"a fresh process died {self._deaths} times")
        try:
            self._process = self._start()
        except OSError as error:
            raise NoRounds(f"a fresh process cannot be started ({error})") from None
        self._ids = None
        self._have(lambda process: process.come_up())

    def bring(self, files: Sequence[str], test: str, label: str) -> None:
        """Have it run a test up to a call.

        Raises:
            NoRounds: it does not come there.
        """
        self.come_up()
        if self._ids is None:
            self._ids = self._have(lambda process: process.collect(files)).ids
        if test not in self._ids:
            raise NoRounds("a fresh process does not collect the test")
        answer = self._have(lambda process: process.run(test, "", holds=True))
        while isinstance(answer, At) and answer.label != label:
            answer = self._have(lambda process: process.go(holds=True))
        if not isinstance(answer, At):
            why = answer.failure or answer.skipped or answer.wrong or "it does not make this call"
            raise NoRounds(f"a fresh process does not reach the call: {why}")
        self.at = answer

    def let_go(self) -> None:
        """Have it run to the end of its test, if it is in one."""
        if self.at is not None:
            self.at = None
            with contextlib.suppress(NoRounds):
                self._have(lambda process: process.go(holds=False))

    def begin_to_finish(self) -> None:
        """Have it end its fixtures, and do not wait for that."""
        if self._process is not None:
            self._process.begin_to_finish()

    def _have(self, step: Callable[[Process], R]) -> R:
        process = self._process
        if process is None:
            raise NoRounds("a fresh process has ended")
        try:
            return step(process)
        except (Lost, Unusable) as error:
            words = process.last_words()
            self._deaths += 1
            self.end()
            if isinstance(error, TooLong):
                raise NoRounds(f"a fresh process took more than {process.timeout_s:g} s") from None
            raise NoRounds(f"a fresh process died ({error}){words}") from None
        except NoRounds:
            raise
        except BaseException:  # Ctrl-C, a time limit: its answer would be taken for another's
            self.end()
            raise


class FurtherPair:
    """A candidate and a reference.

    Attributes:
        members: of each side; whose CUDA context is to be made first comes first.
    """

    def __init__(self, members: dict[Side, Member]) -> None:
        self.members = members
        self._order = Order()

    @property
    def first(self) -> Side | None:
        """Whose CUDA context was made first."""
        return self._order.first

    def look(self) -> None:
        """See who has one now."""
        self._order.see(*(self.members[side].cuda for side in _SIDES))

    def restart_if_one_is_gone(self) -> None:
        """Of a pair of which one has to be started again the order is another."""
        if not all(member.is_there for member in self.members.values()):
            self.end()
            self._order = Order()

    def end(self) -> None:
        """End both."""
        for member in self.members.values():
            member.end()


class Further:
    """The further pairs of a process that runs tests; none is started before it is needed.

    Args:
        start: starts a process of a side; the number tells it from all others.
        files: of a side, what it collects.
    """

    def __init__(
        self,
        start: Callable[[Side, int], Process],
        files: Callable[[Side], Sequence[str]],
    ) -> None:
        self._start = start
        self._files = files
        self._pairs: dict[tuple[Side, int], FurtherPair] = {}
        self._started = 0

    @contextlib.contextmanager
    def at(self, firsts: Sequence[Side], test: str, label: str) -> Iterator[list[FurtherPair]]:
        """So many pairs, each with the side that comes first, that hold in a call of a test; they
        run on to its end after the block.

        Raises:
            NoRounds: one of them does not come there.
        """
        chosen = self._chosen(firsts)
        try:
            for number in (0, 1):
                coming = [(pair, *tuple(pair.members.items())[number]) for pair in chosen]
                for _, _, member in coming:  # these come up at the same time
                    member.come_up()
                for pair, side, member in coming:
                    member.bring(self._files(side), test, label)
                    pair.look()
            yield chosen
        finally:
            for pair in chosen:
                for member in pair.members.values():
                    member.let_go()

    def finish(self) -> None:
        """End all when they have ended their fixtures, which they do at the same time."""
        members = [one for pair in self._pairs.values() for one in pair.members.values()]
        for member in members:
            member.begin_to_finish()
        for member in members:
            member.finish()

    def end(self) -> None:
        """End all."""
        for pair in self._pairs.values():
            pair.end()

    def _chosen(self, firsts: Sequence[Side]) -> list[FurtherPair]:
        found = []
        for i, first in enumerate(firsts):
            key = (first, firsts[:i].count(first))
            if key not in self._pairs:
                members = {side: self._member(side) for side in _SIDES}
                order = _SIDES if first == "current" else _SIDES[::-1]
                self._pairs[key] = FurtherPair({side: members[side] for side in order})
            self._pairs[key].restart_if_one_is_gone()
            found.append(self._pairs[key])
        return found

    def _member(self, side: Side) -> Member:
        self._started += 1
        number = self._started
        return Member(lambda: self._start(side, number))
