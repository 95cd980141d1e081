"""What a run and its processes of a revision say to each other: records, as JSON behind its length,
over two pipes."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_kernelprof.clock import now_s
from pytest_kernelprof.schema.paired import Sampled
from pytest_kernelprof.schema.run import Test
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from typing import Any

Step = Literal["open", "take", "close", "leave"]
"""Of rounds of a call: "open" a profiler session for them; "take" so many now; "close" the session,
and say what they took; "leave" it, if one is open, as nobody wants what it has."""

_SIZE = struct.Struct("!Q")
_LARGEST = 1 << 30
_CHUNK = 1 << 20
_CLOSED = "it closed the connection"


class Launch(msgspec.Struct, frozen=True, tag=True):
    """To a process, first: the code that it runs, laid out, and how it is started.

    Attributes:
        name: how the revision is told, for example ``main (abc1234)``.
        root: the user's folder. tree: the folder that stands in its place. folder: of both tree
            and what its run writes.
        tests: the files of today's that lie over the revision's, relative to the tree.
        notes: what is not as in the user's folder, in words.
        arguments: pytest's. cwd: the folder where it is started.
        python: another environment's interpreter; empty for the candidate's own.
        path: the candidate's ``sys.path``; to another environment's python only the user's
            folders of it.
        seed: of pytest-randomly, where that is active.
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


class Collect(msgspec.Struct, frozen=True, tag=True):
    """To the reference, once.

    Attributes:
        files: the test files, of the tree.
        kept: the tests that are measured as they have a snapshot, of which the candidate knows.
    """

    files: tuple[str, ...]
    kept: tuple[str, ...] = ()


class RunTest(msgspec.Struct, frozen=True, tag=True):
    """To the reference: run a test.

    Attributes:
        id: empty, last: there are no more tests.
        next: the one after it, empty for none.
        holds: whether it holds inside of each call whose kernels can be timed.
    """

    id: str = ""
    next: str = ""
    holds: bool = False


class Go(msgspec.Struct, frozen=True, tag=True):
    """To who holds inside a call: run on, to the next call or the end; ``holds``: hold there."""

    holds: bool = True


class DoStep(msgspec.Struct, frozen=True, tag=True):
    """To who holds: do a step of rounds of the call; ``rounds``: how many to take."""

    step: Step
    rounds: int = 0


class Collected(msgspec.Struct, frozen=True, tag=True):
    """From the reference: empty as pytest is up there, and again when it has collected.

    Attributes:
        ids: the tests that it has.
        errors: what collection met, by node id of the file.
        cuda: whether CUDA is up there.
        shared: files of today's that the revision has otherwise, and that its code imports.
    """

    ids: tuple[str, ...] = ()
    errors: dict[str, str] = {}
    cuda: bool = False
    shared: tuple[str, ...] = ()


class At(msgspec.Struct, frozen=True, tag=True):
    """From who runs a test: a call has been measured, and it holds inside of it.

    Attributes:
        label: which of the test's profiles it is.
        work: its arguments and result, a line for each tensor: shape, type, strides, device.
        cuda: whether CUDA is up in that process.
    """

    label: str
    work: tuple[str, ...] = ()
    cuda: bool = False


class Done(msgspec.Struct, frozen=True, tag=True):
    """From the reference: a test has run.

    Attributes:
        id: empty, last: there are no more.
        test: what it took, if anything.
        failure: what it failed by, in one line, its limits apart; empty where it did not.
        skipped: why it was skipped; empty where it was not.
        reached: the revision's own files (none of today's tests) that the test's code comes from.
        wrong: why nothing that it takes can be believed: it has loaded files of the user's folder.
        opened: the files of the user's folder that were opened since the last test.
        lines: of profiles all of whose kernels are launched by lines of today's files, these.
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
    """From the reference: it cannot be run, and why; whether it has printed more of that."""

    why: str
    printed: bool = False


ToReference = Launch | Collect | RunTest | Go | DoStep
FromReference = Collected | At | Sampled | Done | Refused


class Lost(Exception):  # noqa: N818 (a state)
    """The other side is gone, or what came is nothing that it would say; with the reason."""


class TooLong(Lost):
    """Nothing came, or could be sent, in the time that there was."""


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
        return cls(incoming, outgoing, ToReference)

    def send(self, record: msgspec.Struct, timeout_s: float | None = None) -> None:
        """Send a record.

        Raises:
            Lost: nobody takes it; ``TooLong`` if that is for the time alone.
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
            Lost: as ``send``, or it is no record of the kind.
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
