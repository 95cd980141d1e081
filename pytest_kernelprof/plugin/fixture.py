"""``KernelProfile``: the object that a test talks to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from pytest_kernelprof.errors import CannotMeasureError, MarkerError
from pytest_kernelprof.limits.kinds import parse_keyword
from pytest_kernelprof.measure.arguments import Arguments
from pytest_kernelprof.measure.checks import CLOSE
from pytest_kernelprof.plugin.comparison import Comparison, compare, judge, names_of
from pytest_kernelprof.plugin.ledger import Asked
from pytest_kernelprof.plugin.measuring import (
    asked_call,
    asked_region,
    measure_block,
    measure_call,
    nothing_to_look_at,
    run_plainly,
)
from pytest_kernelprof.plugin.places import place_of_call
from pytest_kernelprof.plugin.settings import check_option
from pytest_kernelprof.summary.words import line_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_kernelprof.api import Profile
    from pytest_kernelprof.limits.kinds import Limit
    from pytest_kernelprof.measure.checks import Check
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.ranks import Ranks
    from pytest_kernelprof.schema.run import Place

R = TypeVar("R")


class KernelprofWarning(pytest.PytestWarning):
    """A verdict that was not reached (the interval of a time holds its limit), or cold code."""


class Region:
    """What ``with kernel_profile.region(...) as region`` hands out."""

    def __init__(self) -> None:
        self._profile: Callable[[], Profile] | None = None

    @property
    def profile(self) -> Profile:
        """The block's profile, after the block.

        Raises:
            RuntimeError: the block has not ended.
        """
        if self._profile is None:
            raise RuntimeError("region.profile is available only after the with block")
        return self._profile()


class KernelProfile:
    """Profiles callables and blocks of one test, which is judged when it has run.

    Calling it, ``kernel_profile(fn, *args, **kwargs)``, warms up, profiles and measures ``fn`` and
    returns the first call's result.
    """

    def __init__(self, test: MeasuredTest) -> None:
        self._test = test

    def __call__(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Warm up, profile and measure ``fn(*args, **kwargs)``; returns the first call's result."""
        return self.run(fn, args, kwargs)

    def run(
        self,
        fn: Callable[..., R],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        setup: Callable[[], Any] | None = None,
        warmup: int | None = None,
        rounds: int | None = None,
        flush_l2: bool | None = None,
        group: object = None,
    ) -> R:
        """The explicit form of a call.

        Args:
            setup: runs before each call, outside the region, and hands back fresh arguments: a
                tuple, a pair of tuple and dict, or None to keep the given ones.
            warmup: calls before the first profiled one. rounds: profiled calls.
            flush_l2: whether the L2 cache is flushed before each timed round.
            group: which ranks of ``torch.distributed`` make this call, as a group or as numbers; by
                default all, where it is initialised.

        Raises:
            IncompleteProfile: the profiler cannot be used here, or a rank did not come; the
                message says why.
            MarkerError: an option is not of its form, or this rank is not in the group.
            CannotMeasureError: a TypeError; ``fn`` is no callable, or returns a generator or
                coroutine, whose body would not be measured.
        """
        test, arguments = self._test, Arguments(args, {} if kwargs is None else kwargs, setup)
        place = place_of_call(test.place)
        with test.ledger.asking(asked_call(place)):
            if not callable(fn):
                raise CannotMeasureError(
                    f"kernel_profile profiles a callable, got {type(fn).__name__}; "
                    "write kernel_profile(fn, *args), not kernel_profile(fn(*args))"
                )
            asked = {"warmup": warmup, "rounds": rounds, "flush_l2": flush_l2}
            chosen = {k: check_option(k, v) for k, v in asked.items() if v is not None}
            if test.unmeasured:
                test.ledger.leave_out(test.unmeasured)
                return run_plainly(fn, arguments)
            result = measure_call(
                test, test.plan(test.needs(), **chosen), fn, arguments, place, group
            )
        hold_comparisons(test, fn, arguments, group)
        return result

    def compare(
        self,
        candidate: Callable[..., Any],
        reference: Callable[..., Any],
        /,
        *args: Any,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
        check: Check = CLOSE,
        fresh: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Comparison:
        """Measure two callables on the same arguments in turn (A B, B A, ...), in one run.

        The comparison has ``speedup``, ``interval``, ``min_speedup(1.5)`` and
        ``not_slower(by="2%")``. The test's markers do not judge these profiles.

        Args:
            metric: "cuda_time" (default; on the CPU "latency"), "latency" or "peak_memory".
            rounds: pairs to begin with; 12 by default. More are added while there is no interval
                and, by assertions, while they are undecided. Fewer than 8 have none.
            setup: as in ``run``; called before each round of each callable.
            check: what holds the candidate's result against the reference's. By default floating
                tensors have to be close; ``check(result, reference_result)`` raises or returns
                False where they are not; None checks nothing.
            fresh: hands out other inputs, as ``setup`` does, for one more call of each: a candidate
                that remembers results by the address of its inputs fails there. Tensors among the
                arguments are then copied, and the copies overwritten.

        Raises:
            IncompleteProfile: the profiler cannot be used here, or a profile stayed incomplete.
            MarkerError: an option is not of its form, or a round took none of what is compared.
            WrongResult: the candidate returned another result than the reference, or did no GPU
                work to compare by ``cuda_time``.
        """
        first, second = names_of(candidate, reference)
        found = self.compare_all(
            {first: candidate, second: reference},
            *args,
            reference=second,
            metric=metric,
            rounds=rounds,
            setup=setup,
            check=check,
            fresh=fresh,
            **kwargs,
        )
        return found[first]

    def compare_all(
        self,
        callables: Mapping[str, Callable[..., Any]],
        /,
        *args: Any,
        reference: str,
        metric: str | None = None,
        rounds: int | None = None,
        setup: Callable[[], Any] | None = None,
        check: Check = CLOSE,
        fresh: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Mapping[str, Comparison]:
        """Measure several callables in turn; ``reference`` names the one that all others are
        compared with. A mapping from their names to comparisons; ``print`` it for a table.

        Args and errors are those of ``compare``.
        """
        return compare(
            self._test,
            callables,
            Arguments(args, kwargs, setup),
            reference=reference,
            metric=metric,
            rounds=rounds,
            check=check,
            fresh=fresh,
        )

    def region(
        self, name: str = "region", *, group: object = None, **limits: Any
    ) -> contextlib.AbstractContextManager[Region]:
        """Profile a block as it stands, once. A limit given here replaces the same of a marker.

        Args:
            group: which ranks of ``torch.distributed`` have this block, as in ``run``: at its end
                they wait for each other.

        Raises:
            MarkerError: a limit is unknown or not of its form; as the block ends, this rank is not
                in the group.
            IncompleteProfile: the profiler cannot be used here, or a rank did not come; the
                message says why.
        """
        own = {limit.key: limit for limit in self._parsed(limits)}
        ledger, place = self._test.ledger, place_of_call(self._test.place)
        if self._test.unmeasured:
            ledger.leave_out(self._test.unmeasured, own.values())
            region = Region()
            region._profile = self._no_profile
            return contextlib.nullcontext(region)
        asked = asked_region(name, own, place)
        ledger.ask(asked)
        return self._region(name, asked, place, group)

    @contextlib.contextmanager
    def _region(self, name: str, asked: Asked, place: Place, group: object) -> Iterator[Region]:
        region = Region()
        with (
            self._test.ledger.asking(asked),
            measure_block(self._test, name, asked.own, place, group) as kept,
        ):
            yield region
        region._profile = (lambda: kept[0]) if kept else self._no_profile

    def ranks(self, number: int | None = None, *, backend: str | None = None) -> Ranks:
        """So many ranks of ``torch.distributed``, each a process: ``ranks(2).run(fn, *args)``.

        Args:
            number: by default what the marker ``kernelprof(ranks=2)`` says.
            backend: by default "nccl", on the CPU "gloo".

        Raises:
            MarkerError: no number is said, or none of one or more.
        """
        from pytest_kernelprof.plugin.ranks import Ranks, asked_ranks

        if number is None:
            number = self._test.options.ranks
        with self._test.ledger.asking(asked_ranks(place_of_call(self._test.place))):
            if number is None:
                raise MarkerError(
                    "kernel_profile.ranks: the number of ranks is missing; write "
                    "kernel_profile.ranks(2).run(fn), or mark the test with kernelprof(ranks=2)"
                )
            return Ranks(self._test, number, backend)

    def limit(self, **limits: Any) -> None:
        """Set limits at run time, by the markers' names: ``kernel_profile.limit(max_kernels=3)``.

        Replaces the same limit of a marker, for every profile of the test. Several arguments are a
        tuple, keyword arguments a dict: ``max_memcpys={"n": 0, "direction": "d2h"}``.

        Raises:
            MarkerError: there is no such limit, or it is not of its form.
        """
        for limit in self._parsed(limits):
            self._test.ledger.set_limit(limit)

    def _parsed(self, limits: dict[str, Any]) -> Iterator[Limit]:
        """Limits by their keywords. A test may catch that one is refused; the conclusion does not,
        since nothing is judged by it."""
        for name, value in limits.items():
            what = f"it was refused at {line_words(place_of_call(self._test.place))}"
            with self._test.ledger.asking(Asked(what, remedy="", instead=name)):
                limit = parse_keyword(name, value)
            yield limit

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles of this test so far, in order. Of very many only the newest have kernels
        (100,000 in all) and traces (100)."""
        self._leave_if_unmeasured()
        return self._test.ledger.profiles

    @property
    def last(self) -> Profile:
        """The newest profile.

        Raises:
            RuntimeError: nothing has been profiled yet.
        """
        self._leave_if_unmeasured()
        found = self._test.ledger.last
        if found is None:
            raise RuntimeError(
                "nothing has been profiled yet: call kernel_profile(fn, *args) first"
            )
        return found

    def _leave_if_unmeasured(self) -> None:
        if self._test.ledger.unmeasured or self._test.ledger.blind:
            self._no_profile()

    def _no_profile(self) -> NoReturn:
        nothing_to_look_at(self._test, "profile")


def hold_comparisons(
    test: MeasuredTest,
    fn: Callable[..., Any],
    arguments: Arguments,
    group: object = None,
) -> None:
    """Compare what was profiled with the reference of each marker, on the ranks that have made the
    call; a failure is told at the end."""
    for limit in test.ledger.comparing:
        assert limit.reference is not None
        one, other = names_of(fn, limit.reference)
        found = compare(
            test,
            {one: fn, other: limit.reference},
            arguments,
            reference=other,
            metric=limit.metric or None,
            check=limit.check,
            judged=limit.name,
            group=group,
        )[one]
        message = judge(found, limit)
        if message:
            test.ledger.broken.append(message)
        test.ledger.hold(limit)
