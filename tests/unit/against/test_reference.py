"""Whatever is wrong with the reference is an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pytest_kernelprof.against.reference import Process, Reference, Unusable
from pytest_kernelprof.against.wire import Lost, TooLong
from pytest_kernelprof.schema.against import Collected, Done, Refused

KNOWN = Collected(("t.py::a", "t.py::b"), {"u.py": "ImportError: no fresh"})


class Double:
    """A process that answers as it is told."""

    timeout_s = 5.0

    def __init__(self, *answers: object) -> None:
        self.answers: Iterator[object] = iter(answers)
        self.ended = 0

    def collect(self, files: object) -> Any:
        return self._answer()

    def run(self, test: str, following: str) -> Any:
        return self._answer()

    def finish(self) -> None:
        self.end()

    def end(self) -> None:
        self.ended += 1

    def last_words(self) -> str:
        return ": killed"

    def _answer(self) -> object:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def reference(*processes: Double) -> Reference:
    waiting = iter(processes)
    made = Reference(lambda: cast(Process, next(waiting)))
    made.start()
    made.collect(["t.py"])
    return made


def test_it_answers() -> None:
    process = Double(KNOWN, Done("t.py::a"))
    made = reference(process)
    assert made.run("t.py::a", "") == Done("t.py::a")
    assert made.run("u.py::c", "") == "ImportError: no fresh"
    assert made.run("t.py::c", "") == "it has no such test"
    made.finish()
    made.end()
    assert process.ended == 1


def test_it_is_started_again_once() -> None:
    first, second = Double(KNOWN, Lost("gone")), Double(KNOWN, Done("t.py::b"), TooLong("x"))
    made = reference(first, second)
    assert made.run("t.py::a", "t.py::b") == "the reference died as it ran t.py::a (gone): killed"
    assert made.run("t.py::b", "") == Done("t.py::b")
    told = "the reference was ended: it ran t.py::a for more than 5 s"
    assert made.run("t.py::a", "t.py::b") == told
    assert made.run("t.py::b", "") == f"{told}; it had been started again once before"
    assert (first.ended, second.ended) == (1, 1)


def test_one_that_cannot_be_used_is_asked_no_more() -> None:
    process = Double(Unusable(Refused("an installed copy")))
    made = reference(process)
    assert made.run("t.py::a", "") == "an installed copy"
    assert process.ended == 1
    made = reference(Double(Unusable(Refused("status 4", printed=True))))
    assert made.run("t.py::a", "") == "status 4: killed"


def test_one_that_dies_twice_as_it_starts_is_asked_no_more() -> None:
    made = reference(Double(Lost("gone")), Double(Lost("gone")))
    assert "died as it was starting" in str(made.run("t.py::a", ""))


def test_one_that_cannot_be_started() -> None:
    def fail() -> Process:
        raise OSError("no memory")

    made = Reference(fail)
    made.start()
    made.collect([])
    assert made.run("t.py::a", "") == "the reference cannot be started (no memory)"
