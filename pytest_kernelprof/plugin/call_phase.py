"""The fixtures that tests ask for, and the call phase of a test: begun, measured and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.limits.marks import is_marked
from pytest_kernelprof.plugin.items import (
    Target,
    all_is_wanted,
    device_to_look_at,
    is_judged,
    is_reported,
    known_marks,
    named_here,
    place_of_test,
    run_state,
    settings_of,
    snapshot_judge,
    state_of,
    target_of,
    timed_by_benchmark,
)
from pytest_kernelprof.plugin.reporting import tell_properties

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.whole_call import WholeCall

_FIXTURES = frozenset({"kernel_profile", "kernel_benchmark"})


def begin_test(item: pytest.Item, target: Target, *, asked: bool = True) -> MeasuredTest:
    """What the test's measurements depend on, and the ledger that they go to.

    Args:
        asked: whether the test asks for numbers, by the fixture or a limit.
    """
    from pytest_kernelprof.plugin.ledger import Ledger
    from pytest_kernelprof.plugin.measuring import MeasuredTest, measuring

    state, settings = run_state(item.config), settings_of(item)
    state.measures = True  # which a fixture fetched by name did not tell before
    baseline_of = None if state.quiet else state.baseline_of  # rank 0 compares
    state_of(item).test = test = MeasuredTest(
        id=item.nodeid,
        place=place_of_test(item),
        device=target.device,
        unmeasured=target.unmeasured,
        settings=settings,
        ledger=Ledger(
            known_marks(item),
            settings.undecided,
            asked=asked,
            lines=bool(settings.revision),
            snapshot=snapshot_judge(item, target, asked=asked),
            baseline=baseline_of(item.nodeid) if baseline_of is not None else None,
        ),
        measuring=measuring(item.config, item.name),
        everything=settings.report or bool(settings.run_document) or all_is_wanted(item.config),
        keeps_timelines=all_is_wanted(item.config),
        after_call=state.after_call,
    )
    return test


@pytest.fixture
def kernel_profile(request: pytest.FixtureRequest) -> KernelProfile:
    """Profile GPU code: kernel_profile(fn, *args) warms up, profiles and measures it, and returns
    fn(*args); limits come from markers or kernel_profile.limit(...)."""
    from pytest_kernelprof.plugin.fixture import KernelProfile

    item: pytest.Item = request.node
    whole_call = state_of(item).whole_call
    if whole_call is not None:  # fetched as the test runs, which measures by itself from here on
        whole_call.give_way()
    return KernelProfile(begin_test(item, target_of(item)))


@pytest.fixture
def kernel_benchmark(kernel_profile: KernelProfile) -> None:
    """As kernel_profile, and times with pytest-benchmark, which has to be installed and active."""
    # Where it is, the bridge's fixture of this name takes the place of this one.
    from pytest_kernelprof.errors import IncompleteProfile

    raise IncompleteProfile(
        "kernel_benchmark needs pytest-benchmark, which is not active in this run: pip install "
        "'pytest-kernelprof[benchmark]', drop -p no:benchmark, or use kernel_profile(fn, *args) "
        "instead"
    )


@pytest.fixture
def kernelprof_device(request: pytest.FixtureRequest) -> str:
    """The device to run on, "cuda" or "cpu". A test that asks for it runs without a GPU too, where
    compute operators are counted instead of kernels."""
    settings = settings_of(request.node)
    if settings.disable:
        from pytest_kernelprof.device.inventory import usual_kind

        return "cpu" if settings.device == "cpu" else usual_kind()
    return target_of(request.node).device


def begin_call(item: pytest.Item) -> None:
    """Begin to profile the call phase, or note what fixtures measure around it."""
    state = state_of(item)
    if state.test is not None:
        asked = getattr(getattr(item, "_fixtureinfo", None), "initialnames", _FIXTURES)
        state.test.ledger.begin_call(for_fixtures=_FIXTURES.isdisjoint(asked))
    elif whole_call_is_profiled(item):
        state.whole_call = _begin_whole_call(item)


def whole_call_is_profiled(item: pytest.Item) -> bool:
    """Whether the whole call phase is measured: of a test with a limit, or of each."""
    settings, judged = run_state(item.config).settings, is_judged(item)
    if settings.disable or not (settings.all or judged) or timed_by_benchmark(item):
        return False
    return not (judged and target_of(item).unmeasured)


def _begin_whole_call(item: pytest.Item) -> WholeCall:
    """Begin to profile the call phase: of a test with a limit as it asks, of others as far as they
    do not notice."""
    from pytest_kernelprof.plugin import whole_call

    if is_judged(item):
        return whole_call.Judged(begin_test(item, target_of(item)))
    return whole_call.look_at(begin_test(item, Target(device_to_look_at(item)), asked=False))


def end_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, and tell others of it. What they raise hides no failure, and is no
    try of the test, which it may expect to fail."""
    try:
        _judge_call(item, raised)
    except BaseException as verdict:
        _tell_others(item, verdict)
        raise
    _tell_others(item, raised)


def _tell_others(item: pytest.Item, failure: BaseException | None) -> None:
    test = state_of(item).test
    if test is None or run_state(item.config).serves:  # of a baseline nobody hears
        return
    try:
        for profile in test.ledger.untold():
            item.ihook.pytest_kernelprof_profile(item=item, profile=profile)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an outcome of pytest's is none of the test's
        words = f"a hook pytest_kernelprof_profile raised {type(error).__name__}: {error}"
        if failure is None:
            from pytest_kernelprof.errors import IncompleteProfile

            raise IncompleteProfile(words) from error
        item.add_report_section("call", "kernelprof", words)


def _judge_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, unless it has failed by itself: that wins over a limit."""
    state = state_of(item)
    whole_call, state.whole_call = state.whole_call, None
    if raised is not None:
        if whole_call is not None:
            whole_call.abandon(raised)
        _dismiss(item)
        return
    if whole_call is not None:
        try:
            if state.has_benchmark:  # fetched as the test ran, where it could not be foreseen
                whole_call.benchmarked()
            else:
                whole_call.finish()
        except BaseException:
            _dismiss(item)
            raise
    if state.test is None or not state.test.ledger.waits_for_fixtures:
        conclude_test(item)


def _dismiss(item: pytest.Item) -> None:
    """The test's own failure wins over what it took: that is told, and not judged."""
    test = state_of(item).test
    if test is not None:
        _note_taken(item, test)
        test.ledger.dismiss()


def conclude_test(item: pytest.Item) -> None:
    """Judge what the test took; raise or warn as that says."""
    state = state_of(item)
    test = state.test
    if test is None:
        if is_marked(item):
            _refuse_late_markers(item)
        return
    from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, NotJudged
    from pytest_kernelprof.plugin.fixture import KernelprofWarning
    from pytest_kernelprof.plugin.outcome import conclude

    test.ledger.mark(known_marks(item))  # the test may have added markers to itself
    if test.ledger.has_nothing and not test.unmeasured:
        _leave_to_other_ranks(test)
    _note_taken(item, test)
    records = test.ledger.records(unmeasured=test.unmeasured, warn_only=test.settings.warn_only)
    found = conclude(records, named_here(item))
    if state.snapshot is not None:
        state.snapshot.accepts = found.accepts
    for words in found.warnings:
        item.warn(KernelprofWarning(words))
    if found.failure:
        raise LimitExceeded(found.failure, pytrace=False, place=found.place)
    if found.error:
        raise IncompleteProfile(found.error)
    if found.skip:
        raise NotJudged(found.skip)


def _leave_to_other_ranks(test: MeasuredTest) -> None:
    """Of several ranks, one may have nothing to profile: others make the calls (``group=[0]``)."""
    from pytest_kernelprof.capture.agreement import group_without_this

    ranks = group_without_this(test.id, test.settings.rank_timeout)
    if ranks:
        test.ledger.leave_out(f"profiled on other ranks: {ranks} make the calls of this test")


def _refuse_late_markers(item: pytest.Item) -> None:
    """A marked test that was not profiled, though nobody asked for that.

    Raises:
        IncompleteProfile: it got its limit when it ran already.
        MarkerError: it got a limit that compares, which needs the fixture.
    """
    from pytest_kernelprof.errors import IncompleteProfile

    if timed_by_benchmark(item) or target_of(item).unmeasured:
        return
    names = ", ".join(limit.name for limit in known_marks(item).limits)
    if names:
        raise IncompleteProfile(
            f"{names} was not judged: its marker was added while the test ran; add it in a "
            "fixture, or request the fixture kernel_profile"
        )


def _note_taken(item: pytest.Item, test: MeasuredTest) -> None:
    """Keep what the test took for its report, where anybody reads it. Each run tells of a verdict
    that is missing or undecided, whatever reports it writes."""
    taken = test.ledger.report(item.nodeid)
    tell_properties(item, test.ledger.judged(), taken.comparisons if taken is not None else ())
    if taken is not None:
        is_open = any(one.outcome in ("not judged", "undecided") for one in taken.verdicts)
        if is_open or is_reported(item.config):
            state = state_of(item)
            state.taken = [*(state.taken or ()), taken]


def warn_of_unsaved(item: pytest.Item, test: MeasuredTest) -> None:
    """Once the verdict is out, which a warning that is made an error would hide."""
    from pytest_kernelprof.plugin.fixture import KernelprofWarning

    for words in test.ledger.unsaved:
        item.warn(KernelprofWarning(words))
