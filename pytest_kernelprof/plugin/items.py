"""What the plugin keeps and knows of a test, on pytest's own objects: the keys, the markers of the
test, the device that it is measured on, and who reads its results.

Nothing here loads torch or a record before a test needs it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from _pytest.pathlib import bestrelpath

from pytest_kernelprof.errors import MarkerError, NotJudged
from pytest_kernelprof.limits.marks import Marks, is_marked, limit_names, marks_of, names_in_vain
from pytest_kernelprof.plugin.settings import options_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pytest

    from pytest_kernelprof.limits.marks import Marks
    from pytest_kernelprof.plugin.collector import Collector
    from pytest_kernelprof.plugin.measuring import AfterCall, MeasuredTest
    from pytest_kernelprof.plugin.run_snapshots import Snapshots
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.recording import DeviceKind
    from pytest_kernelprof.schema.run import Place, Test


# Names of plugins that know how the run compares with what was before: ``comparison()``.
AGAINST = "kernelprof-against"

RUN_BASELINE = "kernelprof-run-baseline"

"""Also the name, in what workers of pytest-xdist are sent, of the run document and its profiles."""

SNAPSHOT_UPDATE = "kernelprof-snapshot-update"

RUN_RECORD = "kernelprof-run-record"

"""The name of who gathers the run as a record, where anybody reads that."""

# On the config.
SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()

MEASURES = pytest.StashKey[bool]()

"""Whether any test of the run asks for a measurement."""

COLLECTOR: pytest.StashKey[Collector] = pytest.StashKey()

EXPECTED = pytest.StashKey[str]()

"""In an xdist worker: the tests of this run, until a report takes them to the controller."""

SERVES = pytest.StashKey[bool]()

"""There where this run is the reference of another one (--kernelprof-against)."""

QUIET = pytest.StashKey[bool]()

"""There where another process reports and writes for this one: of ranks, rank 0."""

AFTER_CALL: pytest.StashKey[AfterCall] = pytest.StashKey()

"""Who waits for each measured call of a run against a revision; not there in other runs."""

BASELINE_OF = pytest.StashKey[Callable[[str], Any]]()

"""Looks up what a run document has of a test, where one is compared with."""

IN_VAIN: pytest.StashKey[list[tuple[str, tuple[str, ...]]]] = pytest.StashKey()

"""The files whose ``pytestmark`` nobody reads, each with the markers of ours in it."""

# On an item.
MARKS: pytest.StashKey[tuple[tuple[int, ...], Marks]] = pytest.StashKey()

"""What its markers say, and which markers that was read of."""

EARLY: pytest.StashKey[Collection[int]] = pytest.StashKey()

"""The markers, by identity, that it had before its set-up."""

KEPT = pytest.StashKey[bool]()

"""There where this run is a reference, and its candidate has a snapshot of the test."""

TEST: pytest.StashKey[MeasuredTest] = pytest.StashKey()

WHOLE_CALL: pytest.StashKey[WholeCall] = pytest.StashKey()

"""Its call phase, while that is profiled as a whole."""

TAKEN: pytest.StashKey[list[Test]] = pytest.StashKey()

"""What it took and no report has yet."""

_NONE = Marks()


def note_defaults(item: pytest.Item) -> None:
    """Before a test is set up: what it has by now and is not written on it, hooks gave it."""
    early = frozenset(_standing(item)) if is_marked(item) else frozenset()
    if item.stash.get(EARLY, None) != early:
        item.stash[EARLY] = early
        if MARKS in item.stash:  # of another try of the test
            del item.stash[MARKS]


def known_marks(item: pytest.Item) -> Marks:
    """What the markers of a test say. A fixture or the test itself may have added some since.

    Raises:
        MarkerError: as ``marks_of``.
    """
    if not is_marked(item):  # as most tests of most users
        return _NONE
    if EARLY not in item.stash:
        note_defaults(item)
    standing = _standing(item)
    known = item.stash.get(MARKS, None)
    if known is None or known[0] != standing:
        item.stash[MARKS] = known = (standing, marks_of(item, item.stash[EARLY]))
    return known[1]


def _standing(item: pytest.Item) -> tuple[int, ...]:
    return tuple(id(mark) for node in item.listchain() for mark in node.own_markers)


def refuse_marks_in_vain(item: pytest.Item) -> None:
    """Raise where a ``pytestmark`` of ours stands in a conftest.py or an ``__init__.py`` around
    the test: pytest reads none there, so it would limit nothing, and the test would pass.

    Raises:
        MarkerError: with the hook to write instead.
    """
    for file, names in item.config.stash.get(IN_VAIN, ()):
        if Path(file).parent in item.path.parents:
            raise MarkerError(
                f"pytestmark in {file}: {', '.join(names)} limits nothing, because pytest does "
                "not read pytestmark there; to give all tests of the folder a default, write in "
                "its conftest.py: def pytest_itemcollected(item): "
                "item.add_marker(pytest.mark.max_kernels(10))"
            )


def find_marks_in_vain(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note the files around tests whose ``pytestmark`` pytest does not read."""
    packages = {getattr(getattr(item, "module", None), "__package__", None) for item in items}
    around = {
        ".".join(parts[:i])
        for parts in (package.split(".") for package in packages if package)
        for i in range(1, len(parts) + 1)
    }
    modules = [sys.modules[name] for name in around if name in sys.modules]
    modules += [
        plugin
        for plugin in config.pluginmanager.get_plugins()
        if Path(getattr(plugin, "__file__", None) or "").name == "conftest.py"
    ]
    found = {module.__file__: names_in_vain(module) for module in modules}
    config.stash[IN_VAIN] = [(file, names) for file, names in found.items() if file and names]


CUDA_HINT = (
    "there is no CUDA device here; if the test needs one, mark it "
    '@pytest.mark.kernelprof(device="cuda"), or set the ini key kernelprof_device = cuda for all: '
    "then it is skipped without one"
)

_FIXTURE = "kernel_profile"

_DEVICE_FIXTURE = "kernelprof_device"

_DISABLED = "--kernelprof-disable: nothing is measured"


class Target(NamedTuple):
    """Where a test is measured.

    Attributes:
        device: what its code runs on.
        unmeasured: why it runs without being measured, a few words and a colon first; empty where
            it is measured.
    """

    device: DeviceKind
    unmeasured: str = ""


TARGET = pytest.StashKey[Target]()

"""Of a test, from its set-up on."""


def asks_for_us(item: pytest.Item) -> bool:
    """Whether a test asks for numbers, by the fixture or a marker."""
    return _FIXTURE in getattr(item, "fixturenames", ()) or is_marked(item)


def target_of(item: pytest.Item) -> Target:
    """Where a test is measured that asks for numbers, or has a snapshot; found once a try.

    Raises:
        NotJudged: it is marked for CUDA, and there is no device; or its limits are all of a GPU,
            and it is measured on the CPU.
        ProfilerUnavailable: a GPU is required, or CUDA is broken in this process.
    """
    if TARGET not in item.stash:
        item.stash[TARGET] = _target(item)
    return item.stash[TARGET]


def why_unmeasured(item: pytest.Item) -> str:
    """Why a test runs without being measured, as far as that is known."""
    return item.stash[TARGET].unmeasured if TARGET in item.stash else ""


def _target(item: pytest.Item) -> Target:
    settings, marks = item.config.stash[SETTINGS], known_marks(item)
    asked, asks = options_of(marks.options).device or settings.device, asks_for_us(item)
    is_for_cuda = asked == "cuda" and asks
    if settings.disable and not is_for_cuda:
        return Target("cpu", _DISABLED)
    if asked == "cpu":
        return Target(_on_cpu(marks))
    from pytest_kernelprof.device.inventory import has_no_device, why_no_gpu
    from pytest_kernelprof.errors import ProfilerUnavailable

    missing = why_no_gpu()
    if not missing:
        return Target("cpu", _DISABLED) if settings.disable else _on_gpu(item)
    if not asks:  # it has a snapshot, which is compared where it can be
        return Target("cpu", missing if asked == "cuda" else "")
    if settings.require_gpu:
        raise ProfilerUnavailable(f"--kernelprof-require-gpu: {missing}")
    if asked == "auto" and _DEVICE_FIXTURE in getattr(item, "fixturenames", ()):
        return Target(_on_cpu(marks))
    if has_no_device():
        if is_for_cuda:
            raise NotJudged(missing)
        return Target("cpu", missing)
    if not is_for_cuda:
        return Target("cuda")  # what measures says what is wrong with it
    if settings.blind == "error":
        raise ProfilerUnavailable(missing)
    raise NotJudged(missing)


def _on_gpu(item: pytest.Item) -> Target:
    from pytest_kernelprof.device.health import refuse_broken, why_broken

    if item.config.stash[SETTINGS].all and not asks_for_us(item):
        return Target("cpu" if why_broken() else "cuda")  # what it does without is its own affair
    refuse_broken()
    return Target("cuda")


def device_to_look_at(item: pytest.Item) -> DeviceKind:
    """The device of a test that asks for none: unlike ``target_of`` it leaves CUDA alone."""
    from pytest_kernelprof.device.inventory import usual_kind, usual_kind_untouched

    asked = options_of(known_marks(item).options).device or item.config.stash[SETTINGS].device
    if asked == "cpu":
        return "cpu"
    try:
        return usual_kind() if asked == "cuda" else usual_kind_untouched()
    except Exception:  # a fixture has put something in place of torch's functions
        return "cuda"  # and what is wrong there is told in the test's row


def _on_cpu(marks: Marks) -> DeviceKind:
    if marks.limits and not any(limit.on_cpu for limit in marks.limits):
        names = ", ".join(limit.name for limit in marks.limits)
        raise NotJudged(f"not applicable on the CPU: {names}")
    return "cpu"


BRIDGE = "kernelprof-benchmark"

"""The plugin that is registered where it is there."""

HAS_BENCHMARK = pytest.StashKey[bool]()

"""On a test that has got its fixture."""


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test asks for us, by a fixture, a marker or its snapshot."""
    return asks_for_us(item) or has_snapshot(item)


def promises_of(item: pytest.Item) -> tuple[str, ...]:
    """What a test promises: the names of its limits, and ``snapshot`` if it has one."""
    return (*limit_names(item), *(("snapshot",) if has_snapshot(item) else ()))


def is_measured(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a test is measured, because it asks for it or all are."""
    return config.stash[SETTINGS].all or concerns_us(item)


def is_reported(config: pytest.Config) -> bool:
    """Whether anybody reads what tests took, beyond their verdicts."""
    settings = config.stash[SETTINGS]
    bridged = config.pluginmanager.hasplugin(BRIDGE)
    compared = bool(settings.against)
    return is_shown(config) or compared or bridged or all_is_wanted(config)


def is_shown(config: pytest.Config) -> bool:
    """Whether the report at the end was asked for."""
    return config.stash[SETTINGS].report


def all_is_wanted(config: pytest.Config) -> bool:
    """Whether somebody reads all that tests took; a worker has no such reader itself."""
    settings = config.stash[SETTINGS]
    return bool(settings.run_files) or settings.github or is_hooked(config)


def timed_by_benchmark(item: pytest.Item) -> bool:
    """Whether pytest-benchmark times a test, whose call phase must not be profiled as a whole."""
    active = item.config.pluginmanager.hasplugin(BRIDGE)
    return active and "benchmark" in getattr(item, "fixturenames", ())


def has_benchmark(item: pytest.Item) -> bool:
    """Whether the running test has got pytest-benchmark's fixture, by name or as it ran."""
    return item.stash.get(HAS_BENCHMARK, False)


def is_active(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is there, whatever way it was loaded: its hooks are specified."""
    hook = getattr(config.hook, "pytest_benchmark_update_machine_info", None)
    return hook is not None and bool(hook.has_spec())


SNAPSHOTS: pytest.StashKey[Snapshots] = pytest.StashKey()

"""On the config: where they are looked up; not there in a run that profiles nothing."""

SNAPSHOT_JUDGE: pytest.StashKey[SnapshotJudge] = pytest.StashKey()

"""On an item: its snapshots, where it has any or is to have some."""


def has_snapshot(item: pytest.Item) -> bool:
    """Whether a test has a snapshot for any device, or may have one in a file that cannot be read;
    of a reference, whether its candidate has."""
    stash = item.config.stash
    return KEPT in item.stash or (SNAPSHOTS in stash and stash[SNAPSHOTS].has_any(item))


def look_up(item: pytest.Item, device: DeviceKind) -> None:
    """Have the test's snapshots at hand, from its set-up or its first measurement on. None are
    where nothing is profiled, and none judge the reference of a run against a revision.

    Raises:
        SnapshotError: their file cannot be read, or not be written to.
    """
    if SNAPSHOT_JUDGE not in item.stash and SNAPSHOTS in item.config.stash:
        judge = item.config.stash[SNAPSHOTS].judge_of(item, device)
        if judge is not None:
            item.stash[SNAPSHOT_JUDGE] = judge


def snapshot_judge(item: pytest.Item, target: Target, *, asked: bool) -> SnapshotJudge | None:
    """What judges a test that is to be measured by its snapshots.

    Args:
        target: where it is measured, or why it is not.
        asked: whether it asks for numbers. Of another one (--kernelprof-all) a snapshot is made,
            but nothing is brought up for it.
    """
    if target.unmeasured:
        return None
    stash = item.config.stash
    if SNAPSHOTS in stash and (asked or (stash[SNAPSHOTS].updates and _is_up(target.device))):
        look_up(item, target.device)
    return item.stash.get(SNAPSHOT_JUDGE, None)


def is_judged(item: pytest.Item) -> bool:
    """Whether the whole call is to keep to anything: limits, or a snapshot."""
    judge = item.stash.get(SNAPSHOT_JUDGE, None)
    kept = KEPT in item.stash or (judge is not None and judge.profiles)
    return bool(known_marks(item).limits) or kept


def _is_up(device: DeviceKind) -> bool:
    from pytest_kernelprof.device.inventory import cuda_is_up

    try:
        return "torch" in sys.modules and (device == "cpu" or cuda_is_up())
    except Exception:  # a fixture has put something in place of torch's functions
        return False


def is_hooked(config: pytest.Config) -> bool:
    """Whether anybody implements ``pytest_kernelprof_run``."""
    return bool(config.hook.pytest_kernelprof_run.get_hookimpls())


def place_of_test(item: pytest.Item) -> Place:
    """Where the test function begins, decorators included."""
    from pytest_kernelprof.capture.attribution import own_file
    from pytest_kernelprof.schema.run import Place

    path, line = str(item.reportinfo()[0]), item.reportinfo()[1] or 0
    if path != str(item.path):  # a class's that it inherits, or of bytecode that was copied
        function = inspect.unwrap(getattr(item, "obj", None))  # type: ignore[arg-type]
        path = own_file(path, getattr(function, "__globals__", {}))
    return Place(path, line + 1)


def named_here(item: pytest.Item) -> str:
    """Name a test as pytest takes it in the folder that it was started in."""
    file = bestrelpath(item.config.invocation_params.dir, item.path)
    return f"{file}::{item.nodeid.partition('::')[2]}"
