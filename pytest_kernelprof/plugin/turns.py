"""The candidate's side of times against a revision: each measured call takes turns with the one
that the reference holds in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_kernelprof.against.protocol import RunTest
from pytest_kernelprof.against.timing import (
    Timed,
    first_difference,
    not_timed,
    own_rounds,
    time_call,
)
from pytest_kernelprof.against.verdict import why_judged
from pytest_kernelprof.clock import now_s
from pytest_kernelprof.device.conditions import alone
from pytest_kernelprof.device.presence import finish_work
from pytest_kernelprof.stats.pairs import DEFAULT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_kernelprof.against.protocol import At, Done
    from pytest_kernelprof.against.timing import FreshPairs
    from pytest_kernelprof.against.worker import Reference
    from pytest_kernelprof.plugin.measuring import MeasuredCall, MeasuredTest

_AT_WORK = 2
_OVER = "the test exceeds a limit of its own"
_REPEATED = "the test was repeated"


class Turns:
    """Runs each test on the reference, call by call, and times the calls of it.

    Args:
        times: whether anything is to be timed.

    Attributes:
        timed: what came of the calls of the test that runs, by the labels of their profiles.
    """

    def __init__(self, reference: Reference, fresh: FreshPairs, *, times: bool) -> None:
        self.timed: dict[str, Timed] = {}
        self._reference = reference
        self._fresh = fresh
        self._is_reviewed: Callable[[], bool] = bool
        self._times = times
        self._test = ""
        self._tries = 0

    def begin(self, test: str, following: str, is_reviewed: Callable[[], bool] = bool) -> None:
        """Have the reference run a test, up to the first of its calls.

        Args:
            is_reviewed: whether the test's snapshot is another one in the revision.
        """
        self._test, self._tries, self._is_reviewed = test, 0, is_reviewed
        self.timed.clear()
        self._reference.begin(test, following, holds=self._times)

    def set_up(self) -> None:
        """The test begins here, or is repeated: then its times are no comparison any more."""
        self._tries += 1
        if self._tries > 1:
            self.timed = {label: Timed(not_timed(_REPEATED)) for label in self.timed}
            self._reference.answer()

    def answer(self) -> Done | str:
        """What became of the test there, once it has run to its end."""
        return self._reference.answer()

    def after_call(self, test: MeasuredTest, call: MeasuredCall) -> None:
        """Time a call, if the reference holds in the same; then the reference goes on."""
        if test.id != self._test or not self._times:
            return
        at = self._reference.at
        if at is None or at.label != call.label:
            self._note_why(call)
            return
        if call.profile.outcome == "failed" and not test.settings.warn_only:
            other = first_difference(call.more.work(call.result), at.work)
            self.timed[call.label] = Timed(not_timed(_OVER), other)
        else:
            begun = now_s()
            timed = self._time(test, call, at)
            paired = structs.replace(timed.paired, took_s=now_s() - begun)
            self.timed[call.label] = replace(timed, paired=paired)
        finish_work()  # from here on the reference is at work
        self._reference.go(holds=True)

    def _time(self, test: MeasuredTest, call: MeasuredCall, at: At) -> Timed:
        more, settings = call.more, test.settings
        margin = test.options.margin or settings.margin or DEFAULT_MARGIN
        return time_call(
            RunTest(test.id, holds=True, call=call.label),
            more.work(call.result),
            margin,
            own_rounds(more.series()),
            self._reference,
            self._fresh,
            partial(alone, more.device, settings.lock_timeout, test.id, at_work=_AT_WORK),
            lambda: why_judged(at.profile, call.profile, is_reviewed=self._is_reviewed()),
        )

    def _note_why(self, call: MeasuredCall) -> None:
        """Why a call is not timed that the reference does not hold in."""
        why = call.more.why_untimed()
        if self._tries > 1:
            why = why or _REPEATED
        self.timed[call.label] = Timed(not_timed(why or "the revision does not make this call"))
