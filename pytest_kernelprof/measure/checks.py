"""Check that candidates of a comparison return what the reference does, and compute it anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pytest_kernelprof.errors import WrongResult
from pytest_kernelprof.gpu.inventory import Device, synchronize
from pytest_kernelprof.measure.arguments import Arguments, Prepare, args_and_kwargs
from pytest_kernelprof.profiler.tensors import Likeness, OwnMemory, kept, likeness

if TYPE_CHECKING:
    from pytest_kernelprof.distributed.agreement import Agreement
    from pytest_kernelprof.gpu.inventory import Device
    from pytest_kernelprof.measure.arguments import Prepare
    from pytest_kernelprof.records.profile import Profile

Check = Callable[[Any, Any], Any] | Literal["close"] | None
"""What compares a candidate's result with the reference's; None does not."""
CLOSE: Literal["close"] = "close"
NOT_CHECKED = "not checked for remembered results"

_MOST_NAMED = 2
_REMEDY = (
    "If this is intended, pass your own check=: a function check(result, reference_result), or None"
)


@dataclass(frozen=True, slots=True)
class _Finding:
    """How a result compares with the reference's, in words; and what is wrong, if anything."""

    words: str = ""
    wrong: str = ""
    error: Exception | None = None
    agrees: bool = False


class Checks:
    """Compares the results of the first calls of a comparison.

    Attributes:
        found: for each candidate, how its results compare, in words.
    """

    def __init__(self, check: Check, reference: str, device: Device, *, fresh: bool) -> None:
        self.found: dict[str, tuple[str, ...]] = {}
        self._check = check
        self._reference = reference
        self._device = device
        self._keeps_all = fresh
        self._firsts: dict[str, Any] = {}
        self._finding = _Finding()

    def look(self, name: str, result: Any) -> None:
        """Keep the result of the reference's first call, or compare a candidate's with it, before
        another call writes to its memory."""
        if self._check is None:
            return
        synchronize(self._device)
        if name == self._reference or self._keeps_all:
            self._firsts[name] = self._kept(result)
        if name != self._reference:
            self._finding = self._compare(result, self._firsts[self._reference])
        synchronize(self._device)

    def settle(
        self, name: str, agreement: Agreement, reference: Prepare, in_place: Sequence[str]
    ) -> None:
        """Note how ``look`` found a candidate. A result that is wrong on one rank is wrong on all.

        Args:
            reference: returns another call of the reference.
            in_place: the arguments that calls changed, so that each call has other inputs.

        Raises:
            WrongResult: the candidate returned another result, though the reference always returns
                the same.
        """
        finding = self._finding
        if self._check is None:
            finding = _Finding("results not checked (check=None)")
        elif self._check == CLOSE and in_place:
            why = f"{', '.join(in_place)} changes in place; make new ones with setup="
            finding = _Finding(f"results not compared: {why}")
        said = f"{name} returned a different result than {self._reference}: {finding.wrong}"
        first = self._firsts.get(self._reference)
        finding = self._judged(finding, said, agreement, reference, first)
        self.found[name] = (finding.words, NOT_CHECKED)

    def release(self) -> None:
        """Drop all results."""
        self._firsts.clear()
        self._finding = _Finding()

    def on_other_inputs(
        self,
        callables: Mapping[str, Callable[..., Any]],
        handed_out: Any,
        own: OwnMemory,
        agreement: Agreement,
    ) -> None:
        """Call each once more, on other inputs in the memory of the first ones.

        Raises:
            WrongResult: a candidate returned another result than the reference.
            CannotMeasureError: ``fresh`` returned something else than arguments.
        """
        args, kwargs = args_and_kwargs("fresh", handed_out)

        def result_of(name: str) -> Any:
            own_args, own_kwargs = own.holding(args, kwargs)
            result = callables[name](*own_args, **own_kwargs)
            synchronize(self._device)
            return result

        again = partial(partial, result_of, self._reference)
        reference = self._kept(result_of(self._reference))
        same = likeness(reference, self._firsts.get(self._reference)).agrees
        told = "checked with other inputs"
        if same or own.moved:
            why = "inputs with the same result" if same else "tensors of other types or shapes"
            told = f"{NOT_CHECKED} (fresh= gave {why})"
        for name, (words, _) in self.found.items():
            result = result_of(name)
            finding = self._compare(result, reference)
            if likeness(result, self._firsts.get(name)).agrees and not same:
                said = (
                    f"{name} returned the result of other inputs: on those of fresh= it returned "
                    "what it did on the first ones. A result must not be remembered by the "
                    "address of its inputs"
                )
            else:
                said = (
                    f"{name}, on the inputs of fresh=, returned a different result than "
                    f"{self._reference}: {finding.wrong}"
                )
            finding = self._judged(finding, said, agreement, again, reference)
            if finding.agrees:
                self.found[name] = (words, told)

    def _kept(self, result: Any) -> Any:
        """Return a copy, or the error that prevented it: a lack of memory, for example."""
        try:
            return kept(result)
        except Exception as error:
            if self._check != CLOSE:
                raise
            return error

    def _judged(
        self, finding: _Finding, said: str, agreement: Agreement, again: Prepare, reference: Any
    ) -> _Finding:
        """Return the finding unless it is wrong on any rank. If another call of the reference
        returns something else again, results cannot be compared."""
        if self._check == CLOSE and any(agreement.gather("what differs", finding.wrong)):
            another = again()()
            synchronize(self._device)
            random = bool(likeness(another, reference).apart)
            if any(agreement.gather("what differs again", random)):
                why = f"those of {self._reference} differ between calls"
                return _Finding(f"results not compared: {why}")
        wrong = said if finding.wrong else ""
        for one in (wrong, *agreement.gather("the results", wrong)):
            if one:
                raise WrongResult(wrong or f"on another rank: {one}") from finding.error
        return finding

    def _compare(self, result: Any, reference: Any) -> _Finding:
        """Compare a result with the reference's by the check."""
        if self._check == CLOSE:
            if isinstance(reference, Exception):
                return _Finding(f"results not compared: {type(reference).__name__}")
            return _by_norm(likeness(result, reference))
        assert callable(self._check)
        name = getattr(self._check, "__name__", "the check")
        try:
            says = self._check(result, reference)
            if says is None or says:
                return _Finding(f"results pass {name}", agrees=True)
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), "")
            return _Finding(wrong=f"{type(error).__name__}: {first}", error=error)
        return _Finding(wrong=f"{name} says {says}")


def in_own_memory(given: Arguments, own: OwnMemory) -> Arguments:
    """Return the arguments copied to memory of our own; with ``setup``, anew for each call."""
    if given.setup is None:
        return Arguments(*own.holding(given.args, given.kwargs))
    setup = given.setup
    return replace(given, setup=lambda: own.holding(*args_and_kwargs("setup", setup(), given)))


def refuse_idle(profiles: Mapping[str, Profile], reference: str) -> None:
    """Refuse candidates whose warmed-up call does nothing on the GPU though the reference's does.

    Raises:
        WrongResult: there is one, on any rank.
    """
    for name, profile in profiles.items():
        for one, other in zip(profile.ranks, profiles[reference].ranks, strict=True):
            if _activities(other) and not _activities(one):
                raise WrongResult(
                    f"{name} launched no kernels, copies or memsets, {reference} launched "
                    f"{_activities(other):.0f} a call: a remembered result has no GPU time to "
                    'compare. If this is intended, compare with metric="latency"'
                )


def _activities(profile: Profile) -> float:
    names = ("kernels", "memcpys", "memsets")
    return sum(profile.metrics[name].value or 0 for name in names if name in profile.metrics)


def _by_norm(found: Likeness) -> _Finding:
    named = ", ".join(found.left_out[:_MOST_NAMED])
    left_out = f"{named}{_more(found.left_out, _MOST_NAMED)}"
    if found.apart:
        return _Finding(wrong=f"{found.apart[0]}{_more(found.apart, 1)}. {_REMEDY}")
    if found.norm is None:
        return _Finding(f"results not compared: {left_out}")
    besides = f"; not compared: {left_out}" if left_out else ""
    return _Finding(f"results agree (relative norm {found.norm:.2g}{besides})", agrees=True)


def _more(of: Sequence[str], named: int) -> str:
    return f" (+{len(of) - named} more)" if len(of) > named else ""
