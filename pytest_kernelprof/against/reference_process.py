"""The reference as its candidate has it: started, asked, and ended with its run.

Whatever is wrong with it is an answer ("the reference died"), never an error of the run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from pytest_kernelprof.against.import_redirect import mapping_of
from pytest_kernelprof.against.invocation import environment_for
from pytest_kernelprof.against.protocol import (
    At,
    Collect,
    Collected,
    Done,
    FromReference,
    Go,
    Launch,
    Lost,
    Refused,
    RunTest,
    TooLong,
    Wire,
)
from pytest_kernelprof.against.rounds import SENT_S, HeldRounds, NoRounds, Order, Relayed
from pytest_kernelprof.against.supervisor import CODE, PACKAGE_ROOT, last_lines, watched
from pytest_kernelprof.against.supervisor import end as end_keeper
from pytest_kernelprof.clock import now_s
from pytest_kernelprof.device.procfs import note_ours
from pytest_kernelprof.device.shared_lock import tell_children

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.schema.paired import Side

A = TypeVar("A", Collected, Done)
R = TypeVar("R")

_START_S = 300.0
_END_S = 10.0
_LOG_LINES = 4


class Unusable(Exception):  # noqa: N818 (a state)
    """No test can be run by the reference; the message says why.

    Attributes:
        printed: whether it has printed more of that.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.why)
        self.printed = refused.printed


class Process(HeldRounds):
    """One process of the reference.

    Args:
        number: of the worker that has it.

    Attributes:
        timeout_s: how long it may take for a test, what it waits inside of that apart.
        cuda: whether CUDA was up there when it last spoke.
    """

    def __init__(self, launch: Launch, number: int, timeout_s: float) -> None:
        scratch = os.path.join(launch.folder, "scratch", str(number))
        os.makedirs(scratch, exist_ok=True)
        self._log = os.path.join(scratch, "log")
        self._ended = self._is_finishing = False
        self._left_s = timeout_s
        self.cuda = False
        mapping = mapping_of(launch.root, launch.tree)
        wire, ends = Wire.to_a_child(FromReference)
        super().__init__(wire, timeout_s)
        tell_children()  # so that it shares the GPU with this process, and is no stranger on it
        self._keeper = subprocess.Popen(
            watched(launch.folder, self._log, ends, _command(launch.python, ends)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment_for(os.environ, mapping, scratch, number, launch.python),
            pass_fds=ends,
            start_new_session=True,
        )
        note_ours(self._keeper.pid)
        for end in ends:
            os.close(end)
        own = (f"--basetemp={scratch}/temp", "-o", f"cache_dir={scratch}/cache")
        self._first: Launch | None = replace(launch, arguments=(*launch.arguments, *own))

    def collect(self, files: Sequence[str], kept: Sequence[str] = ()) -> Collected:
        """Have it collect test files of the tree.

        Args:
            kept: the tests that have snapshots.

        Raises:
            Unusable: it refuses. Lost: it is gone.
        """
        self.come_up()
        self.cuda = self._expect(Collected, _START_S).cuda
        self._wire.send(Collect(tuple(files), tuple(kept)), SENT_S)
        collected = self._expect(Collected, max(_START_S, self.timeout_s))
        self.cuda = collected.cuda
        return collected

    def come_up(self) -> None:
        """Have it load its pytest, and do not wait for that.

        Raises:
            Lost: it is gone.
        """
        if self._first is not None:
            first, self._first = self._first, None
            self._wire.send(first, _START_S)

    def run(self, test: str, following: str, *, holds: bool = False) -> At | Done:
        """Have it run a test, to its end or to a call inside of which it holds.

        Args:
            following: the test after it, which says which fixtures live on.

        Raises:
            Lost: it is gone, or takes too long.
        """
        self._left_s = self.timeout_s
        return self._until_it_holds(RunTest(test, following, holds))

    def go(self, *, holds: bool) -> At | Done:
        """Have it run on.

        Raises:
            Lost: as ``run``.
        """
        return self._until_it_holds(Go(holds))

    def _until_it_holds(self, asked: RunTest | Go) -> At | Done:
        begun = now_s()
        self._wire.send(asked, SENT_S)
        answer = self._receive(max(0.0, self._left_s))
        self._left_s -= now_s() - begun
        if isinstance(answer, At):
            self.cuda = answer.cuda
        elif not isinstance(answer, Done):
            raise Lost(f"it sent {type(answer).__name__}, expected a call or the end")
        return answer

    def begin_to_finish(self) -> None:
        """Have it end its fixtures, and do not wait for that."""
        if not self._is_finishing:
            self._is_finishing = True
            with contextlib.suppress(Lost):
                self._wire.send(RunTest(), SENT_S)

    def finish(self) -> None:
        """Have it end its fixtures, and end it."""
        self.begin_to_finish()
        with contextlib.suppress(Lost, Unusable):
            self._expect(Done, self.timeout_s)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it tidies up behind itself
                self._keeper.wait(_END_S)
        self.end()

    def end(self) -> None:
        """End it as it stands."""
        if self._ended:
            return
        self._ended = True
        end_keeper(self._keeper)
        self._wire.close()

    def last_words(self) -> str:
        """The end of what it has printed, after a colon; empty where there is nothing."""
        lines = [line.strip() for line in last_lines(self._log, 4000) if line.strip()]
        return ": " + " | ".join(lines[-_LOG_LINES:]) if lines else ""

    def _receive(self, timeout_s: float) -> object:
        answer: object = self._wire.receive(timeout_s)
        if isinstance(answer, Refused):
            raise Unusable(answer)
        return answer

    def _expect(self, kind: type[A], timeout_s: float) -> A:
        answer = self._receive(timeout_s)
        if not isinstance(answer, kind):
            raise Lost(f"it sent {type(answer).__name__}, expected {kind.__name__}")
        return answer


def _command(python: str, ends: tuple[int, int]) -> list[str]:
    """The reference, by another environment's interpreter and plugin where one is named."""
    started = CODE.format(module="pytest_kernelprof.plugin.reference")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    package = "" if python else PACKAGE_ROOT
    given = ",".join(map(str, ends))
    return [python or sys.executable, *flags, "-c", started, package, given]


class HasProcess(Relayed):
    """Who has a process, and takes its rounds: there are none, either, since it is gone.

    Attributes:
        at: the call inside of which it holds; None where it does not.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._deaths = 0
        self.at: At | None = None

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


class Reference(HasProcess):
    """The reference of one process that runs tests: once it is gone it is started again, once.

    It runs a test up to a call inside of which it holds, and on when it is told to, so that at any
    time only one of the two is at work. While it holds, it takes rounds of that call.

    Args:
        start: starts a process of it. cuda_is_up: whether CUDA is, in this process.

    Attributes:
        collected: what it has.
    """

    def __init__(
        self, start: Callable[[], Process], cuda_is_up: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self._start = start
        self._cuda_is_up = cuda_is_up
        self._order = Order()
        self._asked: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._why_unusable = ""
        self._was_interrupted = False
        self._test = ""
        self._answer: Done | str = ""
        self.collected = Collected()

    @property
    def first(self) -> Side | None:
        """Whose CUDA context was made first, of the two; None where that is not known."""
        return self._order.first

    def start(self) -> None:
        """Start it, and do not wait for it."""
        self._order = Order()
        try:
            self._process = self._start()
            self._process.come_up()
        except OSError as error:
            self._why_unusable = f"the reference cannot be started ({error})"
        except Lost:
            pass  # which is told when it is to collect

    def collect(self, files: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Have it collect, and wait for that."""
        self._asked = tuple(files), tuple(kept)
        if self._process is None:
            return
        try:
            self.collected = self._process.collect(*self._asked)
            self._look()
        except Unusable as error:
            words = self._process.last_words() if error.printed else ""
            self.refuse(f"{error}{words}")
        except Lost as error:
            self._died(error, "it was starting")

    def begin(self, test: str, following: str, *, holds: bool = False) -> None:
        """Have it run a test, up to a call inside of which it holds or to its end."""
        self.at, self._test = None, test
        if self._was_interrupted:
            self._was_interrupted = False
            self.start()
            self.collect(*self._asked)
        if self._process is None:
            self._answer = self._why_unusable
        elif test not in self.collected.ids:
            self._answer = self._why_missing(test)
        else:
            self._step(lambda process: process.run(test, following, holds=holds))

    def go(self, *, holds: bool) -> None:
        """Have it run on, if it holds."""
        if self.at is not None:
            self._step(lambda process: process.go(holds=holds))

    def answer(self) -> Done | str:
        """Have it run to the end of the test: what became of that there, or why nothing did."""
        self.go(holds=False)
        return self._answer

    def _step(self, step: Callable[[Process], At | Done]) -> None:
        process = self._process
        assert process is not None, "it holds or begins"
        self.at = None
        self._look()
        try:
            answer = step(process)
        except Lost as error:
            self._answer = self._died(error, f"it ran {self._test}")
            return
        except BaseException:
            self._interrupt()
            raise
        self._look()
        if isinstance(answer, At):
            self.at = answer
        else:
            self._answer = answer

    def _have(self, step: Callable[[Process], R]) -> R:
        process = self._process
        if process is None or self.at is None:
            raise NoRounds("the reference does not wait in a call")
        try:
            return step(process)
        except Lost as error:
            self.at = None
            self._answer = self._died(error, f"it took rounds of {self._test}")
            raise NoRounds(self._answer) from None
        except NoRounds:
            raise
        except BaseException:
            self._interrupt()
            raise

    def _interrupt(self) -> None:
        """A time limit of the test, or Ctrl-C, between what was asked and its answer: nobody may
        take that for the answer to something else. It is started again for the next test."""
        self.end()
        self._was_interrupted = True
        self._answer = "the test was interrupted while the reference worked"

    def _look(self) -> None:
        if self._process is not None:
            self._order.see(self._cuda_is_up(), self._process.cuda)

    def refuse(self, why: str) -> None:
        """Use it no more; that is also the answer."""
        self.end()
        self._why_unusable = self._answer = why

    def _died(self, error: Lost, when: str) -> str:
        process = self._process
        assert process is not None
        process.end()
        if isinstance(error, TooLong):
            told = f"the reference was ended: {when} for more than {process.timeout_s:g} s"
        else:
            told = f"the reference died while {when} ({error}){process.last_words()}"
        self._process = None
        self._deaths += 1
        if self._deaths > 1:
            self._why_unusable = f"{told}; it had already been restarted once"
            return told
        self.start()
        self.collect(*self._asked)
        return told

    def _why_missing(self, test: str) -> str:
        file = test.partition("::")[0]
        errors = self.collected.errors
        found = errors.get(file) or next((w for f, w in errors.items() if test.startswith(f)), "")
        return found or "the test does not exist"
