"""The protocol between a run and its workers: records, as JSON behind its length, over two pipes.

A worker is a pytest process that runs tests of one side's code: of the revision, or, in the pairs
that confirm a suspicion, also of today's code. The run asks, the worker answers:

==============  ====================================================
``Launch``      ``Collected``, empty, once pytest is up
``Collect``     ``Collected``, once it names files
``RunTest``     ``At`` where it holds inside of a call, else ``Done``
``Go``          the same
``DoStep``      ``Sampled``
==============  ====================================================

A worker that cannot run any test answers ``Refused``.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_kernelprof.errors import said_by
from pytest_kernelprof.records.comparison import Sampled, Source
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.system import Real, now_s

if TYPE_CHECKING:
    from pytest_kernelprof.measure.sessions import MoreRounds

RoundStep = Literal["open", "take", "close", "leave"]
"""A step of taking rounds of a call: "open" a profiler session, "take" rounds now, "close" the
session and answer what they took, "leave" the session, if one is open, without reading it."""

NO_SUCH_TEST = "the test is not in the baseline"
"""What a worker answers of one that it does not have."""
_SIZE = struct.Struct("!Q")
_LARGEST = 1 << 30
_CHUNK = 1 << 20
_CLOSED = "it closed the connection"


class Launch(msgspec.Struct, frozen=True, tag=True):
    """First: the code that the worker runs, and how it is started.

    Attributes:
        name: the revision in messages, for example ``main (abc1234)``.
        root: the user's folder. tree: the folder that replaces it. folder: the one around the tree
            and what the run writes.
        tests: the user's files that replace the revision's, relative to the tree.
        notes: what the tree lacks, in words.
        arguments: pytest's. cwd: the folder where it is started.
        python: another environment's interpreter; empty for this one.
        source: what a comparison with it is of.
        path: the run's ``sys.path``; for another interpreter only the user's folders of it.
        seed: pytest-randomly's, if that is active.
    """

    name: str
    root: str
    tree: str
    folder: str
    tests: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    cwd: str = ""
    python: str = ""
    path: tuple[str, ...] = ()
    seed: int | None = None
    source: Source = "revision"


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Once: collect test files. The reference is first asked for all that its arguments name, and
    collects at the same time as the run. It answers once it is told which of the files to keep.

    Attributes:
        files: absolute paths; none for what the arguments of pytest name.
        kept: the tests that are measured because they have a snapshot, which only the run knows.
    """

    files: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()


class RunTest(msgspec.Struct, frozen=True, tag=True):
    """Run a test.

    Attributes:
        id: empty for the end of the run: there are no more tests.
        next: the test after it, empty for none; it says which fixtures live on.
        holds: whether to hold inside of each call whose kernels can be timed.
        call: hold only inside of the call with this label; None for each.
    """

    id: str = ""
    next: str = ""
    holds: bool = False
    call: str | None = None


class Go(msgspec.Struct, frozen=True, tag=True):
    """Run on, to the end of the test or, if ``holds``, to the next call that can be timed."""

    holds: bool = True


class DoStep(msgspec.Struct, frozen=True, tag=True):
    """Do a step of rounds of the call that the worker holds in; ``rounds``: how many to take."""

    step: RoundStep
    rounds: int = 0


class Collected(msgspec.Struct, frozen=True, tag=True):
    """What the worker has collected.

    Attributes:
        ids: its tests.
        errors: collection errors, by node id of the file.
        cuda: whether CUDA is up in the worker.
        shared: the user's files that differ from the revision's and that the revision's code
            imports.
    """

    ids: tuple[str, ...] = ()
    errors: dict[str, str] = {}
    cuda: bool = False
    shared: tuple[str, ...] = ()


class At(msgspec.Struct, frozen=True, tag=True):
    """A call has been measured, and the worker holds inside of it.

    Attributes:
        label: of the call's profile.
        work: its arguments and result, a line for each tensor: shape, type, strides, device.
        cuda: whether CUDA is up in the worker.
        profile: the call's profile without its kernels.
    """

    label: str
    work: tuple[str, ...] = ()
    cuda: bool = False
    profile: Profile | None = None


class Done(msgspec.Struct, frozen=True, tag=True):
    """A test has run.

    Attributes:
        id: empty after the last test.
        test: what it took, if anything.
        failure: its error in one line, unless it exceeds a limit; empty without one.
        skipped: why it was skipped; empty where it was not.
        reached: the revision's own files that the test uses; no test files.
        wrong: why no number is valid: the worker loaded code of the user's folder.
        opened: the files of the user's folder that were opened since the last test.
        lines: the user's test files, if they hold all lines that launch the kernels of a profile.
        shared: as of ``Collected``.
    """

    id: str = ""
    test: Test | None = None
    failure: str = ""
    skipped: str = ""
    reached: tuple[str, ...] = ()
    wrong: str = ""
    opened: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The worker can run no test, and why; ``printed``: its log says more."""

    why: str
    printed: bool = False


ToWorker = Launch | Collect | RunTest | Go | DoStep
FromWorker = Collected | At | Sampled | Done | Refused
ANSWERS: dict[type[ToWorker], tuple[type[FromWorker], ...]] = {
    Launch: (Collected,),
    Collect: (Collected,),
    RunTest: (At, Done),
    Go: (At, Done),
    DoStep: (Sampled,),
}
"""The answers to each record; ``Refused`` may answer all."""


class Lost(Exception):  # noqa: N818 (a state)
    """The other side is gone, or sent something unexpected; the message says which."""


class TooLong(Lost):
    """The other side did not send or receive in time."""


class Wire:
    """This process's two ends. It sends and receives one record at a time.

    Args:
        incoming, outgoing: open descriptors, which this closes.
        kind: the records that are expected, a union.
    """

    def __init__(self, incoming: int, outgoing: int, kind: Any) -> None:
        self._in, self._out = incoming, outgoing
        self._decoder = msgspec.json.Decoder(kind)
        os.set_blocking(outgoing, False)

    @classmethod
    def to_a_child(cls, kind: Any) -> tuple[Wire, tuple[int, int]]:
        """A wire, and the descriptors of the other end, for ``of_a_child``."""
        theirs_in, out = os.pipe()
        inn, theirs_out = os.pipe()
        return cls(inn, out, kind), (theirs_in, theirs_out)

    @classmethod
    def of_a_child(cls, given: str) -> Wire:
        """The wire of a process that was started with such descriptors, as ``3,4``."""
        incoming, outgoing = map(int, given.split(","))
        for end in (incoming, outgoing):
            os.set_inheritable(end, False)  # what tests start must not hold the wire
        return cls(incoming, outgoing, ToWorker)

    def send(self, record: msgspec.Struct, timeout_s: float | None = None) -> None:
        """Send a record.

        Raises:
            Lost: the other side is gone; ``TooLong``: it does not receive in time.
        """
        body = msgspec.json.encode(record)
        left = memoryview(_SIZE.pack(len(body)) + body)
        late = _later(timeout_s)
        while left:
            self._wait([], [self._out], late)
            try:
                left = left[Real.write(self._out, left[:_CHUNK]) :]
            except BlockingIOError:  # there was less room than for one write
                continue
            except OSError:
                raise Lost(_CLOSED) from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next record.

        Raises:
            Lost: as for ``send``, or it is not such a record.
        """
        late = _later(timeout_s)
        (size,) = _SIZE.unpack(self._read(_SIZE.size, late))
        if size > _LARGEST:
            raise Lost(f"its record has {size} bytes, which is too many")
        body = self._read(size, late)
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Lost(f"it sent something that is not a record ({error})") from None

    def close(self) -> None:
        """Close both ends."""
        for end in (self._in, self._out):
            Real.close(end)

    def _read(self, size: int, late: float | None) -> bytes:
        parts, left = [], size
        while left:
            self._wait([self._in], [], late)
            try:
                part = Real.read(self._in, min(left, _CHUNK))
            except OSError as error:
                raise Lost(str(error)) from None
            if not part:
                raise Lost(_CLOSED)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _wait(self, incoming: list[int], outgoing: list[int], late: float | None) -> None:
        left = None if late is None else max(0.0, late - now_s())
        if not any(Real.select(incoming, outgoing, [], left)):
            raise TooLong("it gave no answer")


def _later(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else now_s() + timeout_s


def do_step(call: MoreRounds, asked: DoStep) -> Sampled:
    """Do a step of rounds. An exception becomes an answer."""
    try:
        if asked.step == "close":
            return call.sample()
        if asked.step == "take":
            call.take(asked.rounds)
        elif asked.step == "open":
            call.open()
        else:
            call.leave()
    except Exception as error:
        return Sampled(problem=said_by(error))
    return Sampled()


def serve(wire: Wire, call: MoreRounds) -> ToWorker:
    """Do steps of rounds until the run asks for something else; return that.

    Raises:
        Lost: the run is gone.
    """
    try:
        while isinstance(asked := wire.receive(), DoStep):
            wire.send(do_step(call, asked))
        return asked  # type: ignore[no-any-return]
    finally:
        call.leave()
