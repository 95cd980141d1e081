"""The plugin of a run that measures: what a test does on a GPU shares that GPU's lock, so that who
times waits for it, and it for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.device.usage_lock import begin, end, go_on, stop

if TYPE_CHECKING:
    from collections.abc import Generator


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
