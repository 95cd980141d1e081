"""The call phase of a test that does not ask for the fixture, profiled as one block. It begins and
ends in two functions, so that no exception of the test passes through frames of ours."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pytest

from pytest_kernelprof.api import traces_loaded
from pytest_kernelprof.device.usage_lock import begin, end, go_on, stop
from pytest_kernelprof.errors import IncompleteProfile, KernelprofError, MarkerError
from pytest_kernelprof.plugin.measuring import measure_block

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.limits.kinds import Limit
    from pytest_kernelprof.plugin.measuring import MeasuredTest


CUDA_INITIALIZED = (
    "not profiled: CUDA was initialized inside {tests}; --kernelprof-all does not initialize "
    "CUDA, --kernelprof-device=cuda does so before the first test"
)

TORCH_IMPORTED = (
    "not profiled: torch was first imported inside {tests}; --kernelprof-all does not import "
    "torch: import it in conftest.py"
)

BENCHMARKED = (
    "the test calls benchmark, whose calibration and rounds would all be counted: write "
    "kernel_benchmark(fn, *args) in its place"
)


class Judged:
    """Of a test with a limit: what keeps it from being measured is the test's error.

    Raises:
        IncompleteProfile: the profiler cannot be used here.
    """

    def __init__(self, test: MeasuredTest, *, asked: bool = True) -> None:
        self._test = test
        self._traces = traces_loaded()
        self._block = contextlib.ExitStack()
        self._kept: list[Profile] = []
        self._kept = self._block.enter_context(measure_block(test, asked=asked))

    def finish(self) -> None:
        """Keep the profile.

        Raises:
            IncompleteProfile: it could not be had, or is of a test that only loads others.
        """
        self._block.close()
        names = ", ".join(limit.name for limit in self._test.ledger.limits)
        launched = any(profile.kernel_count for profile in self._kept)
        if names and not launched and traces_loaded() > self._traces:
            raise IncompleteProfile(
                f"{names} was not judged: the test launched nothing and loaded a trace, and "
                "markers do not judge loaded traces: assert on the profile, for example assert "
                "profile.kernel_count <= 400"
            )

    def abandon(self, raised: BaseException) -> None:
        """End the session; the test's own failure stands, whatever that meets."""
        where = raised.__traceback__
        with contextlib.suppress(Exception, _GaveWay):
            self._block.__exit__(type(raised), raised, where)
        raised.__traceback__ = where

    def give_way(self) -> None:
        """End the session; there is nothing to finish."""
        self.abandon(_GaveWay())
        self._block = contextlib.ExitStack()

    def benchmarked(self) -> None:
        """Refuse it.

        Raises:
            MarkerError: always, with the remedy.
        """
        self.give_way()
        refuse_whole_call(self._test.ledger.limits)


class Looked(Judged):
    """Of a test that nobody set a limit on (--kernelprof-all): it is only looked at, so whatever
    keeps it from being measured is told in its row and changes nothing else."""

    def __init__(self, test: MeasuredTest) -> None:
        self._why = ""
        try:
            super().__init__(test, asked=False)
        except Exception as error:
            self._why = words_of(error)

    def finish(self) -> None:
        """Keep the profile, or why there is none."""
        try:
            super().finish()
        except Exception as error:
            self._why = words_of(error)
        if self._why:
            self._test.ledger.keep_unmeasured(self._test.device, self._why)

    def give_way(self) -> None:
        """End the session; there is nothing to finish or to tell."""
        self._why = ""
        super().give_way()

    def benchmarked(self) -> None:
        """Say so in its row."""
        self.give_way()
        self._why = BENCHMARKED
        self.finish()


class Unmeasured:
    """Of a test that cannot be looked at without changing what it finds.

    Args:
        why: asked when the test has returned; empty where there was nothing to measure.
    """

    def __init__(self, test: MeasuredTest, why: Callable[[], str]) -> None:
        self._test = test
        self._why = why

    def finish(self) -> None:
        """Say at the end of the run why there is no number, where there would have been one."""
        why = self._why()
        if why:
            self._test.ledger.end_notes.append(why)

    def abandon(self, raised: BaseException) -> None:
        """Nothing was begun."""

    def give_way(self) -> None:
        """There is nothing to tell."""
        self._why = str

    def benchmarked(self) -> None:
        """It is not measured either way."""
        self.finish()


WholeCall: TypeAlias = Judged | Unmeasured
"""A call phase under way. One of these ends it: ``finish``, when the test returned; ``abandon``,
when it has raised; ``give_way``, when it asked for the fixture as it ran, and measures by itself
from there on; ``benchmarked``, when it has returned and pytest-benchmark has repeated it."""


class _GaveWay(BaseException):
    """What ends a session whose profile nobody wants."""


class BringUp:
    """The plugin of a run that looks at tests on a GPU."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        """Before each test, and before other plugins begin to time it."""
        bring_up()
        return (yield)


def bring_up() -> None:
    """Bring up the profiler once CUDA is, between two tests.

    It takes seconds, which a time limit of the test (pytest-timeout) must not see. What goes wrong
    is told when a test is to be measured.
    """
    if not _cuda_is_up():
        return
    from pytest_kernelprof.device.inventory import current_device
    from pytest_kernelprof.measure.sessions import prime

    with contextlib.suppress(Exception):
        prime(current_device("cuda"))


def look_at(test: MeasuredTest) -> WholeCall:
    """Look at a test that nobody set a limit on, if that leaves torch as the test would find it."""
    if not torch_is_loaded():
        return Unmeasured(test, lambda: TORCH_IMPORTED if torch_is_loaded() else "")
    if test.device == "cuda" and test.settings.device == "auto" and not _cuda_is_up():
        return Unmeasured(test, lambda: CUDA_INITIALIZED if _cuda_is_up() else "")
    return Looked(test)


def refuse_whole_call(limits: Iterable[Limit]) -> NoReturn:
    """A call phase that pytest-benchmark repeats as it likes has no count of its own.

    Raises:
        MarkerError: always, with the remedy.
    """
    names = ", ".join(limit.name for limit in limits)
    raise MarkerError(f"{names}: {BENCHMARKED}, which profiles fn once, outside the timed rounds")


def words_of(error: Exception) -> str:
    """What a row says of an error of ours."""
    known = isinstance(error, KernelprofError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _cuda_is_up() -> bool:
    """Whether CUDA is up; if a test keeps that from being asked, measuring will tell."""
    from pytest_kernelprof.device.inventory import cuda_is_up

    try:
        return cuda_is_up()
    except Exception:
        return True


def torch_is_loaded() -> bool:
    """Whether anybody has imported torch."""
    return "torch" in sys.modules


class Sharing:
    """Around the fixtures, the call and the teardown of each test, also of those that are not
    measured. Between them nothing is held: a worker may wait there for its next test.

    Args:
        timeout_s: how long a test waits for who times.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    # Of the older kind: an exception of the test does not pass through a frame of ours.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, None]:
        """The test itself; likewise its fixtures, those of its module and session, and their
        ends."""
        begin(item.nodeid, self._timeout_s)
        yield
        end()

    pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call

    def pytest_enter_pdb(self) -> None:
        """A breakpoint in a test: others do not wait for who sits before it."""
        stop()

    def pytest_leave_pdb(self) -> None:
        """The test goes on."""
        go_on()
