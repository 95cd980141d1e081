"""Which frames are taken out of what was raised: ours, unless the fault is ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _pytest
import pytest

import pytest_kernelprof
from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.plugin.reporting import hide_our_frames

PACKAGE = str(Path(pytest_kernelprof.__file__).parent)


def ours(code: str) -> Callable[..., Any]:
    """A function ``it`` of code that stands in a file of ours."""
    names: dict[str, Any] = {}
    exec(compile(code, f"{PACKAGE}/plugin/double.py", "exec"), names)
    return names["it"]  # type: ignore[no-any-return]


def files_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(BaseException) as error:  # noqa: PT011
        call()
    hide_our_frames(error)
    shown = traceback.TracebackException.from_exception(error.value)
    found = []
    while shown is not None:
        found.append(",".join(Path(frame.filename).name for frame in shown.stack))
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return found


def breaks() -> None:
    raise ValueError("mine")


THROUGH = ours("def it(fn):\n    return fn()\n")
MANAGED = ours("import contextlib\n@contextlib.contextmanager\ndef it(fn):\n    yield fn()\n")


def test_users_code_that_we_called_stands_below_the_line_that_called_us() -> None:
    assert files_of(lambda: THROUGH(lambda: THROUGH(breaks))) == [
        ",".join(["test_failures.py"] * 4)
    ]


def test_frames_of_our_context_managers_go_with_ours() -> None:
    def use() -> None:
        with MANAGED(breaks):
            pass

    assert files_of(use) == [",".join(["test_failures.py"] * 3)]


def test_an_error_of_ours_is_at_the_line_that_called_us_and_has_no_cause_within() -> None:
    assert files_of(lambda: parse_keyword("max_kernels", "many")) == [
        ",".join(["test_failures.py"] * 2)
    ]


def test_a_cause_in_users_code_stays() -> None:
    def both() -> None:
        try:
            THROUGH(breaks)
        except ValueError as error:
            raise MarkerError("because") from error

    assert files_of(both) == [",".join(["test_failures.py"] * 2)] * 2


@pytest.mark.parametrize("fault", ["{}['key']", "1 / 0", "assert False"])
def test_a_fault_of_ours_is_shown_with_all_frames(fault: str) -> None:
    (files,) = files_of(ours(f"def it():\n    {fault}\n"))
    assert files.endswith("double.py")


def test_errors_that_are_each_others_context_end() -> None:
    def circle() -> None:
        one, other = ValueError(), ValueError()
        one.__context__, other.__context__ = other, one
        raise one

    assert len(files_of(circle)) == 2


@pytest.mark.parametrize(("error", "shown"), [(MarkerError("mine"), 1), (KeyError("mine"), 2)])
def test_of_our_error_by_a_hook_which_is_told_without_frames_pytest_is_given_one_to_read(
    error: Exception, shown: int
) -> None:
    names: dict[str, Any] = {"error": error}
    file = Path(_pytest.__file__).with_name("double.py")
    exec(compile("def hook(): it()\ndef it(): raise error", str(file), "exec"), names)
    with pytest.raises(type(error)):
        names["hook"]()
    assert error.__traceback__
    error.__traceback__ = error.__traceback__.tb_next  # without this test's own frame
    excinfo = pytest.ExceptionInfo.from_exception(error)
    hide_our_frames(excinfo)
    assert [entry.name for entry in excinfo.traceback] == ["hook", "it"][-shown:]
