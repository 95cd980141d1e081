"""The fixtures that tests ask for, and the call phase of a test: begun, measured and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.limits.marks import is_marked
from pytest_kernelprof.plugin.items import (
    AFTER_CALL,
    BASELINE_OF,
    MEASURES,
    QUIET,
    SERVES,
    SETTINGS,
    SNAPSHOT_JUDGE,
    TAKEN,
    TEST,
    WHOLE_CALL,
    Target,
    all_is_wanted,
    device_to_look_at,
    has_benchmark,
    is_judged,
    is_reported,
    is_shown,
    known_marks,
    snapshot_judge,
    target_of,
    timed_by_benchmark,
)
from pytest_kernelprof.plugin.reporting import tell_properties
from pytest_kernelprof.plugin.settings import options_of

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.items import Target
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.run_baseline import Baseline
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.run import Profile, Test


def begin_test(item: pytest.Item, target: Target, *, asked: bool = True) -> MeasuredTest:
    """What the test's measurements depend on, and the ledger that they go to.

    Args:
        asked: whether the test asks for numbers, by the fixture or a limit.
    """
    from pytest_kernelprof.plugin.items import place_of_test
    from pytest_kernelprof.plugin.ledger import Ledger
    from pytest_kernelprof.plugin.measuring import MeasuredTest, measuring

    item.config.stash[MEASURES] = True  # which a fixture fetched by name did not tell before
    settings, marks = item.config.stash[SETTINGS], known_marks(item)
    is_read = is_shown(item.config) or all_is_wanted(item.config)
    item.stash[TEST] = test = MeasuredTest(
        id=item.nodeid,
        place=place_of_test(item),
        device=target.device,
        unmeasured=target.unmeasured,
        settings=settings,
        options=options_of(marks.options),
        ledger=Ledger(
            marks,
            settings.undecided,
            asked=asked,
            lines=bool(settings.revision),
            snapshot=snapshot_judge(item, target, asked=asked),
            baseline=_baseline_of(item),
        ),
        measuring=measuring(item.config, item.name),
        everything=is_read or bool(settings.run_document),
        keeps_timelines=all_is_wanted(item.config),
        after_call=item.config.stash.get(AFTER_CALL, None),
    )
    return test


def _baseline_of(item: pytest.Item) -> Baseline | None:
    stash = item.config.stash
    is_compared = BASELINE_OF in stash and QUIET not in stash  # else by the rank that reports
    return stash[BASELINE_OF](item.nodeid) if is_compared else None


@pytest.fixture
def kernel_profile(request: pytest.FixtureRequest) -> KernelProfile:
    """Profile GPU code: kernel_profile(fn, *args) warms up, profiles and measures it, and returns
    fn(*args); limits come from markers or kernel_profile.limit(...)."""
    from pytest_kernelprof.plugin.fixture import KernelProfile

    item: pytest.Item = request.node
    if WHOLE_CALL in item.stash:  # fetched as the test runs, which measures by itself from here on
        item.stash[WHOLE_CALL].give_way()
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
    settings = request.config.stash[SETTINGS]
    if settings.disable:
        from pytest_kernelprof.device.inventory import usual_kind

        asked = options_of(known_marks(request.node).options).device or settings.device
        return "cpu" if asked == "cpu" else usual_kind()
    return target_of(request.node).device


_FIXTURES = frozenset({"kernel_profile", "kernel_benchmark"})


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
    if SERVES in item.config.stash:  # of a reference nobody hears
        return
    try:
        for profile in _untold(item):
            item.ihook.pytest_kernelprof_profile(item=item, profile=profile)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an outcome of pytest's is none of the test's
        words = f"a hook pytest_kernelprof_profile raised {type(error).__name__}: {error}"
        if failure is None:
            from pytest_kernelprof.errors import IncompleteProfile

            raise IncompleteProfile(words) from error
        item.add_report_section("call", "kernelprof", words)


def _untold(item: pytest.Item) -> tuple[Profile, ...]:
    """The profiles that no hook of others has seen."""
    return item.stash[TEST].ledger.untold() if TEST in item.stash else ()


def _judge_call(item: pytest.Item, raised: BaseException | None) -> None:
    """Judge what the test took, unless it has failed by itself: that wins over a limit."""
    whole_call = item.stash.get(WHOLE_CALL, None)
    if whole_call is not None:
        del item.stash[WHOLE_CALL]
    if raised is not None:
        if whole_call is not None:
            whole_call.abandon(raised)
        _dismiss(item)
        return
    if whole_call is not None:
        _end_whole_call(item, whole_call)
    if not waits_for_fixtures(item):
        conclude_test(item)


def waits_for_fixtures(item: pytest.Item) -> bool:
    """Whether the test is judged in its teardown alone."""
    return TEST in item.stash and item.stash[TEST].ledger.waits_for_fixtures


def whole_call_is_profiled(item: pytest.Item) -> bool:
    """Whether the whole call phase is measured: of a test with a limit, or of each."""
    settings, judged = item.config.stash[SETTINGS], is_judged(item)
    if settings.disable or not (settings.all or judged) or timed_by_benchmark(item):
        return False
    return not (judged and target_of(item).unmeasured)


def _dismiss(item: pytest.Item) -> None:
    """The test's own failure wins over what it took: that is told, and not judged."""
    _note_taken(item)
    if TEST in item.stash:
        item.stash[TEST].ledger.dismiss()


def begin_call(item: pytest.Item) -> None:
    """Begin to profile the call phase, or note what fixtures measure around it."""
    if TEST in item.stash:
        asked = getattr(getattr(item, "_fixtureinfo", None), "initialnames", _FIXTURES)
        item.stash[TEST].ledger.begin_call(for_fixtures=_FIXTURES.isdisjoint(asked))
    elif whole_call_is_profiled(item):
        item.stash[WHOLE_CALL] = begin_whole_call(item)


def begin_whole_call(item: pytest.Item) -> WholeCall:
    """Begin to profile the call phase: of a test with a limit as it asks, of others as far as they
    do not notice."""
    from pytest_kernelprof.plugin import whole_call

    if is_judged(item):
        begun: WholeCall = whole_call.Judged(begin_test(item, target_of(item)))
    else:
        target = Target(device_to_look_at(item))
        begun = whole_call.look_at(begin_test(item, target, asked=False))
    return begun


def _end_whole_call(item: pytest.Item, whole_call: WholeCall) -> None:
    try:
        if has_benchmark(item):  # fetched as the test ran, where it could not be foreseen
            whole_call.benchmarked()
        else:
            whole_call.finish()
    except BaseException:
        _dismiss(item)
        raise


def conclude_test(item: pytest.Item) -> None:
    """Judge what the test took; raise or warn as that says."""
    if TEST not in item.stash:
        if is_marked(item):
            _refuse_late_markers(item)
        return
    from pytest_kernelprof.errors import IncompleteProfile, LimitExceeded, NotJudged
    from pytest_kernelprof.plugin.fixture import KernelprofWarning
    from pytest_kernelprof.plugin.items import named_here
    from pytest_kernelprof.plugin.outcome import conclude

    test = item.stash[TEST]
    test.ledger.mark(known_marks(item))  # the test may have added markers to itself
    if test.ledger.has_nothing and not test.unmeasured:
        _leave_to_other_ranks(test)
    _note_taken(item)
    settings = test.settings
    records = test.ledger.records(unmeasured=test.unmeasured, warn_only=settings.warn_only)
    found = conclude(records, named_here(item))
    if SNAPSHOT_JUDGE in item.stash:
        item.stash[SNAPSHOT_JUDGE].accepts = found.accepts
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
    from pytest_kernelprof.capture.ranks import group_without_this

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


def _note_taken(item: pytest.Item) -> None:
    """Keep what the test took for its report, where anybody reads it."""
    if TEST not in item.stash:
        return
    ledger = item.stash[TEST].ledger
    taken = ledger.report(item.nodeid)
    tell_properties(item, ledger.judged(), taken.comparisons if taken is not None else ())
    if taken is not None and (is_reported(item.config) or _is_open(taken)):
        item.stash.setdefault(TAKEN, []).append(taken)


def _is_open(taken: Test) -> bool:
    """Whether a verdict is missing or undecided. Each run says so, whatever reports it writes."""
    return any(one.outcome in ("not judged", "undecided") for one in taken.verdicts)


def warn_of_unsaved(item: pytest.Item) -> None:
    """Once the verdict is out, which a warning that is made an error would hide."""
    from pytest_kernelprof.plugin.fixture import KernelprofWarning

    for words in item.stash[TEST].ledger.unsaved:
        item.warn(KernelprofWarning(words))
