"""Records over two pipes: whole, or the other side is lost."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from pytest_kernelprof.baselines.protocol import (
    Collected,
    Done,
    FromWorker,
    Lost,
    RunTest,
    TooLong,
    ToWorker,
    Wire,
)

Sides = tuple[Wire, Wire]


@pytest.fixture
def sides() -> Iterator[Sides]:
    theirs_in, out = os.pipe()
    inn, theirs_out = os.pipe()
    here, there = Wire(inn, out, FromWorker), Wire(theirs_in, theirs_out, ToWorker)
    yield here, there
    for wire in (here, there):
        with contextlib.suppress(OSError):  # a test may have closed it
            wire.close()


def test_records_arrive_in_order_and_as_their_kind(sides: Sides) -> None:
    here, there = sides
    here.send(RunTest("a", "b"))
    there.send(Collected())
    there.send(Done())
    assert there.receive(1) == RunTest("a", "b")
    assert [here.receive(1), here.receive(1)] == [Collected(), Done()]


def test_a_record_larger_than_a_pipe_arrives(sides: Sides) -> None:
    here, there = sides
    large = Done("x", failure="long" * 500_000)
    sender = threading.Thread(target=there.send, args=(large, 5))
    sender.start()
    assert here.receive(5) == large
    sender.join()


def test_what_ends_it(sides: Sides) -> None:
    here, there = sides
    with pytest.raises(TooLong, match="gave no answer"):
        here.receive(0.01)
    with pytest.raises(TooLong):  # it does not read
        here.send(RunTest("x" * 1_000_000), 0.01)
    there.close()
    with pytest.raises(Lost, match="closed the connection"):
        here.receive(1)
    with pytest.raises(Lost, match="closed the connection"):
        here.send(RunTest("a"), 1)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"\0" * 7 + b"\2{]", "not a record"),
        (b"\0" * 7 + b"\x12" + b'{"type":"Nothing"}', "not a record"),
        (b"\xff" * 8, "too many"),
        (b"\0" * 7 + b"\4{", "closed the connection"),
        (b"\0" * 7 + b"\2\xff\xfe", "not a record"),
    ],
)
def test_what_is_no_record_is_a_lost_other_side(sent: bytes, words: str) -> None:
    inn, out = os.pipe()
    wire = Wire(inn, os.open(os.devnull, os.O_WRONLY), FromWorker)
    os.write(out, sent)
    os.close(out)
    with pytest.raises(Lost, match=words):
        wire.receive(1)
    wire.close()
