"""More pairs of processes, for a call that is suspected: fresh ones, which stay for later ones.

Whose CUDA context is made first is settled by who is brought to a test first: the other one of the
pair is started when that has been.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from pytest_kernelprof.against.reference import Process, RoundsOfProcess, Unusable
from pytest_kernelprof.against.turns import NoRounds, Order
from pytest_kernelprof.against.wire import Lost, TooLong
from pytest_kernelprof.schema.turns import At

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_kernelprof.schema.turns import Side

R = TypeVar("R")

_MOST_DEATHS = 2


class Member(RoundsOfProcess):
    """One process of such a pair.

    Args:
        start: starts a process.

    Attributes:
        at: the call inside of which it holds.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._process: Process | None = None
        self._ids: tuple[str, ...] | None = None
        self._deaths = 0
        self.at: At | None = None

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
            why = answer.failure or answer.skipped or answer.wrong or "it makes no such call"
            raise NoRounds(f"a fresh process does not come to the call: {why}")
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

    def finish(self) -> None:
        """End it when it has ended its fixtures."""
        process, self._process = self._process, None
        if process is not None:
            process.finish()

    def end(self) -> None:
        """End it as it stands."""
        process, self._process = self._process, None
        self.at = None
        if process is not None:
            process.end()

    def _have(self, step: Callable[[Process], R]) -> R:
        process = self._process
        if process is None:
            raise NoRounds("a fresh process is gone")
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

    Args:
        first: whose CUDA context is to be made first.
    """

    def __init__(self, first: Side, candidate: Member, reference: Member) -> None:
        self.candidate, self.reference = candidate, reference
        self._order = Order()
        self.members = (candidate, reference)
        if first == "reference":
            self.members = (reference, candidate)

    @property
    def first(self) -> Side | None:
        """Whose CUDA context was made first."""
        return self._order.first

    def look(self) -> None:
        """See who has one now."""
        self._order.see(self.candidate.cuda, self.reference.cuda)

    def restart_if_one_is_gone(self) -> None:
        """Of a pair of which one has to be started again the order is another."""
        if not all(member.is_there for member in self.members):
            self.end()
            self._order = Order()

    def end(self) -> None:
        """End both."""
        for member in self.members:
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
                members = [pair.members[number] for pair in chosen]
                for member in members:  # these come up at the same time
                    member.come_up()
                for pair, member in zip(chosen, members, strict=True):
                    member.bring(self._files(_side_of(pair, member)), test, label)
                    pair.look()
            yield chosen
        finally:
            for pair in chosen:
                for member in pair.members:
                    member.let_go()

    def finish(self) -> None:
        """End all when they have ended their fixtures, which they do at the same time."""
        members = [member for pair in self._pairs.values() for member in pair.members]
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
                self._pairs[key] = FurtherPair(
                    first, self._member("candidate"), self._member("reference")
                )
            self._pairs[key].restart_if_one_is_gone()
            found.append(self._pairs[key])
        return found

    def _member(self, side: Side) -> Member:
        self._started += 1
        number = self._started
        return Member(lambda: self._start(side, number))


def _side_of(pair: FurtherPair, member: Member) -> Side:
    return "candidate" if member is pair.candidate else "reference"
