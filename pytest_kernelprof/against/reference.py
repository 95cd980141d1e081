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

from pytest_kernelprof.against.invocation import environment_for
from pytest_kernelprof.against.keeper import CODE
from pytest_kernelprof.against.mapping import Mapping
from pytest_kernelprof.against.wire import Lost, TooLong, Wire
from pytest_kernelprof.schema.against import (
    Bye,
    Collect,
    Collected,
    Done,
    Finish,
    FromReference,
    Launch,
    Ready,
    Refused,
    RunTest,
    Start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A = TypeVar("A", Ready, Collected, Done, Bye)

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START_S = 300.0
_END_S = 10.0
_LOG_LINES = 4
_SENT_S = 30.0


class Unusable(Exception):  # noqa: N818 (a state)
    """No test can be run by the reference; the message says why.

    Attributes:
        printed: whether it has printed more of that.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.why)
        self.printed = refused.printed


class Process:
    """One process of the reference.

    Args:
        number: of the worker that has it. path: this process's ``sys.path``.
        seed: of pytest-randomly, where that is active.

    Attributes:
        timeout_s: how long it may take for a test.
    """

    def __init__(
        self,
        launch: Launch,
        number: int,
        path: Sequence[str],
        seed: int | None,
        timeout_s: float,
    ) -> None:
        self.timeout_s = timeout_s
        scratch = os.path.join(launch.laid.folder, "scratch", str(number))
        os.makedirs(scratch, exist_ok=True)
        self._log = os.path.join(scratch, "log")
        self._ended = False
        mapping = Mapping(launch.laid.root, launch.laid.tree)
        theirs_in, out = os.pipe()
        inn, theirs_out = os.pipe()
        self._wire = Wire(inn, out, FromReference)
        self._keeper = subprocess.Popen(
            _command(launch.laid.folder, self._log, (theirs_in, theirs_out)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment_for(os.environ, mapping, scratch, number),
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        for end in (theirs_in, theirs_out):
            os.close(end)
        own = (f"--basetemp={scratch}/temp", "-o", f"cache_dir={scratch}/cache")
        arguments = (*launch.arguments, *own)
        launch = replace(launch, arguments=arguments)
        self._first: Start | None = Start(launch, tuple(path), seed)

    def collect(self, files: Sequence[str]) -> Collected:
        """Have it collect test files of the tree.

        Raises:
            Unusable: it refuses. Lost: it is gone.
        """
        if self._first is not None:
            first, self._first = self._first, None
            self._wire.send(first, _START_S)
            self._expect(Ready, _START_S)
        self._wire.send(Collect(tuple(files)), _SENT_S)
        return self._expect(Collected, max(_START_S, self.timeout_s))

    def run(self, test: str, following: str) -> Done:
        """Have it run a test; the following one says which fixtures live on.

        Raises:
            Lost: it is gone, or takes too long.
        """
        self._wire.send(RunTest(test, following), _SENT_S)
        return self._expect(Done, self.timeout_s)

    def finish(self) -> None:
        """Have it end its fixtures, and end it."""
        with contextlib.suppress(Lost, Unusable):
            self._wire.send(Finish(), _SENT_S)
            self._expect(Bye, self.timeout_s)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it tidies up behind itself
                self._keeper.wait(_END_S)
        self.end()

    def end(self) -> None:
        """End it as it stands."""
        if self._ended:
            return
        self._ended = True
        self._keeper.terminate()
        try:
            self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._wire.close()

    def last_words(self) -> str:
        """The end of what it has printed, after a colon; empty where there is nothing."""
        with contextlib.suppress(OSError), open(self._log, errors="replace") as file:
            lines = [line.strip() for line in file.read()[-4000:].splitlines() if line.strip()]
            return ": " + " | ".join(lines[-_LOG_LINES:]) if lines else ""
        return ""

    def _expect(self, kind: type[A], timeout_s: float) -> A:
        answer = self._wire.receive(timeout_s)
        if isinstance(answer, Refused):
            raise Unusable(answer)
        if not isinstance(answer, kind):
            raise Lost(f"it says {type(answer).__name__} where {kind.__name__} is due")
        return answer


def _command(folder: str, log: str, ends: tuple[int, int]) -> list[str]:
    """The keeper of the folder, and behind it the reference that it starts."""
    keeper = CODE.format(module="pytest_kernelprof.against.keeper")
    started = CODE.format(module="pytest_kernelprof.plugin.reference")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    given = ",".join(map(str, ends))
    reference = [sys.executable, *flags, "-c", started, _PACKAGE_ROOT, given]
    ours = [str(os.getpid()), folder, log, given]
    return [sys.executable, "-I", "-S", "-c", keeper, _PACKAGE_ROOT, *ours, *reference]


class Reference:
    """The reference of one process that runs tests: once it is gone it is started again, once.

    Args:
        start: starts a process of it.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._files: tuple[str, ...] = ()
        self._deaths = 0
        self._why_unusable = ""
        self._process: Process | None = None
        self.collected = Collected(())

    def start(self) -> None:
        """Start it, and do not wait for it."""
        try:
            self._process = self._start()
        except OSError as error:
            self._why_unusable = f"the reference cannot be started ({error})"

    def collect(self, files: Sequence[str]) -> None:
        """Have it collect, and wait for that."""
        self._files = tuple(files)
        if self._process is None:
            return
        try:
            self.collected = self._process.collect(self._files)
        except Unusable as error:
            words = self._process.last_words() if error.printed else ""
            self._give_up(f"{error}{words}")
        except Lost as error:
            self._died(error, "it was starting")

    def run(self, test: str, following: str) -> Done | str:
        """What became of a test there, or why nothing did."""
        if self._process is None:
            return self._why_unusable
        if test not in self.collected.ids:
            return self._why_missing(test)
        try:
            return self._process.run(test, following)
        except Lost as error:
            return self._died(error, f"it ran {test}")

    @property
    def refused(self) -> str:
        """Why no test can be run by it; empty where some may."""
        return self._why_unusable

    def refuse(self, why: str) -> None:
        """Use it no more."""
        self._give_up(why)

    def finish(self) -> None:
        """End it when it has ended its fixtures."""
        process, self._process = self._process, None
        if process is not None:
            process.finish()

    def end(self) -> None:
        """End it as it stands."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _died(self, error: Lost, when: str) -> str:
        process = self._process
        assert process is not None
        process.end()
        if isinstance(error, TooLong):
            told = f"the reference was ended: {when} for more than {process.timeout_s:g} s"
        else:
            told = f"the reference died as {when} ({error}){process.last_words()}"
        self._process = None
        self._deaths += 1
        if self._deaths > 1:
            self._why_unusable = f"{told}; it had been started again once before"
            return told
        self.start()
        self.collect(self._files)
        return told

    def _give_up(self, why: str) -> None:
        self.end()
        self._why_unusable = why

    def _why_missing(self, test: str) -> str:
        file = test.partition("::")[0]
        errors = self.collected.errors
        found = errors.get(file) or next((w for f, w in errors.items() if test.startswith(f)), "")
        return found or "it has no such test"
