"""The fixtures that tests ask for, and what is begun for a test that is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kernelprof.plugin.concerns import all_is_wanted, is_shown
from pytest_kernelprof.plugin.devices import target_of
from pytest_kernelprof.plugin.keys import (
    AFTER_CALL,
    BASELINE_OF,
    MEASURES,
    QUIET,
    SETTINGS,
    TEST,
    WHOLE_CALL,
)
from pytest_kernelprof.plugin.marks import known_marks
from pytest_kernelprof.plugin.settings import options_of
from pytest_kernelprof.plugin.snapshots import snapshot_judge

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.devices import Target
    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.run_baseline import Baseline


def begin_test(item: pytest.Item, target: Target, *, asked: bool = True) -> MeasuredTest:
    """What the test's measurements depend on, and the ledger that they go to.

    Args:
        asked: whether the test asks for numbers, by the fixture or a limit.
    """
    from pytest_kernelprof.plugin.ledger import Ledger
    from pytest_kernelprof.plugin.measuring import MeasuredTest
    from pytest_kernelprof.plugin.places import place_of_test
    from pytest_kernelprof.plugin.progress_line import measuring

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
