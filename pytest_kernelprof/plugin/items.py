"""What the plugin keeps and knows of a run and of a test, on pytest's own objects: its state, the
markers of the test, the device that it is measured on, and who reads its results.

Nothing here loads torch or a record before a test needs it.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from _pytest.pathlib import bestrelpath

from pytest_kernelprof.errors import MarkerError, NotJudged
from pytest_kernelprof.limits.marks import Marks, is_marked, limit_names, marks_of, names_in_vain
from pytest_kernelprof.plugin.collector import Collector
from pytest_kernelprof.plugin.settings import with_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_kernelprof.plugin.measuring import AfterCall, MeasuredTest
    from pytest_kernelprof.plugin.run_baseline import Baseline
    from pytest_kernelprof.plugin.run_snapshots import Snapshots
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
    from pytest_kernelprof.plugin.whole_call import WholeCall
    from pytest_kernelprof.schema.document import Test
    from pytest_kernelprof.schema.profile import Place
    from pytest_kernelprof.schema.recording import DeviceKind

# Names of plugins that know how the run compares with a baseline: ``comparison()``.
AGAINST = "kernelprof-against"
RUN_BASELINE = "kernelprof-run-baseline"
"""Also the name, in what workers of pytest-xdist are sent, of the run document and its profiles."""
SNAPSHOT_UPDATE = "kernelprof-snapshot-update"
RUN_RECORD = "kernelprof-run-record"
"""The name of who gathers the run as a record, where anybody reads that."""
BRIDGE = "kernelprof-benchmark"
"""The name of the bridge to pytest-benchmark, where that is installed."""

CUDA_HINT = (
    "there is no CUDA device here; if the test needs one, mark it "
    '@pytest.mark.kernelprof(device="cuda"), or set the ini key kernelprof_device = cuda for all: '
    "then it is skipped without one"
)

_DEVICE_FIXTURE = "kernelprof_device"
_DISABLED = "--kernelprof-disable: nothing is measured"
_NO_MARKS = Marks()


class RunState:
    """What the plugin keeps of a run.

    Attributes:
        settings: what the user asked for, once pytest is configured.
        collector: gathers what tests took.
        measures: whether any test of the run asks for a measurement.
        expected: in a worker of pytest-xdist, the tests of this run as JSON, until a report takes
            them to the controller.
        serves: whether this run is the baseline of another one (--kernelprof-against).
        quiet: whether another process reports and writes for this one: of ranks, rank 0.
        after_call: who waits for each measured call of a run against a revision.
        baseline_of: looks up what a run document has of a test, where one is compared with.
        snapshots: where snapshots are looked up; None in a run that profiles nothing.
        ignored_marks: the files whose ``pytestmark`` pytest does not read, each with our markers
            in it.
    """

    settings: Settings

    def __init__(self) -> None:
        self.collector = Collector()
        self.measures = self.serves = self.quiet = False
        self.expected = ""
        self.after_call: AfterCall | None = None
        self.baseline_of: Callable[[str], Baseline | None] | None = None
        self.snapshots: Snapshots | None = None
        self.ignored_marks: list[tuple[str, tuple[str, ...]]] = []


class Target(NamedTuple):
    """Where a test is measured.

    Attributes:
        device: what its code runs on.
        unmeasured: why it runs without being measured, a few words and a colon first; empty where
            it is measured.
    """

    device: DeviceKind
    unmeasured: str = ""


class ItemState:
    """What the plugin keeps of a test.

    Attributes:
        marks: what its markers say, and which markers that was read from.
        early: the markers, by identity, that it had before its set-up.
        in_snapshots: whether this run is a baseline, and the run that it serves has a snapshot of
            the test.
        target: where it is measured, from its set-up on.
        snapshot: its snapshots, where it has any or will have some.
        test: what its measurements depend on, from the first one on.
        whole_call: its call phase, while that is profiled as a whole.
        taken: what it took and no report has yet.
        has_benchmark: whether it has the fixture of pytest-benchmark.
    """

    def __init__(self) -> None:
        self.marks: tuple[tuple[int, ...], Marks] | None = None
        self.early: frozenset[int] | None = None
        self.in_snapshots = self.has_benchmark = False
        self.target: Target | None = None
        self.snapshot: SnapshotJudge | None = None
        self.test: MeasuredTest | None = None
        self.whole_call: WholeCall | None = None
        self.taken: list[Test] | None = None


_RUN = pytest.StashKey[RunState]()
_ITEM = pytest.StashKey[ItemState]()


def run_state(config: pytest.Config) -> RunState:
    """What is kept of a run."""
    state = config.stash.get(_RUN, None)
    if state is None:
        config.stash[_RUN] = state = RunState()
    return state


def state_of(item: pytest.Item) -> ItemState:
    """What is kept of a test."""
    state = item.stash.get(_ITEM, None)
    if state is None:
        item.stash[_ITEM] = state = ItemState()
    return state


def note_defaults(item: pytest.Item) -> None:
    """Before a test is set up: what it has by now and is not written on it, hooks gave it."""
    state, early = state_of(item), frozenset(_standing(item)) if is_marked(item) else frozenset()
    if state.early != early:
        state.early, state.marks = early, None  # those of another try of the test


def known_marks(item: pytest.Item) -> Marks:
    """What the markers of a test say. A fixture or the test itself may have added some since.

    Raises:
        MarkerError: as ``marks_of``.
    """
    if not is_marked(item):  # as most tests of most users
        return _NO_MARKS
    state, standing = state_of(item), _standing(item)
    if state.early is None:
        note_defaults(item)
    if state.marks is None or state.marks[0] != standing:
        state.marks = standing, marks_of(item, state.early or ())
    return state.marks[1]


def _standing(item: pytest.Item) -> tuple[int, ...]:
    return tuple(id(mark) for node in item.listchain() for mark in node.own_markers)


def refuse_ignored_marks(item: pytest.Item) -> None:
    """Raise where a ``pytestmark`` of ours stands in a conftest.py or an ``__init__.py`` around
    the test: pytest reads none there, so it would limit nothing, and the test would pass.

    Raises:
        MarkerError: with the hook to write instead.
    """
    for file, names in run_state(item.config).ignored_marks:
        if Path(file).parent in item.path.parents:
            raise MarkerError(
                f"pytestmark in {file}: {', '.join(names)} limits nothing, because pytest does "
                "not read pytestmark there; to give all tests of the folder a default, write in "
                "its conftest.py: def pytest_itemcollected(item): "
                "item.add_marker(pytest.mark.max_kernels(10))"
            )


def find_ignored_marks(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
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
    state = run_state(config)
    state.ignored_marks = [(file, names) for file, names in found.items() if file and names]


def settings_of(item: pytest.Item) -> Settings:
    """The settings of the run, with the options of the test's marker in their place.

    Raises:
        MarkerError: a marker is malformed.
    """
    return with_marker(run_state(item.config).settings, known_marks(item).options)


def asks_for_us(item: pytest.Item) -> bool:
    """Whether a test asks for numbers, by the fixture or a marker."""
    return "kernel_profile" in getattr(item, "fixturenames", ()) or is_marked(item)


def has_snapshot(item: pytest.Item) -> bool:
    """Whether a test has a snapshot for any device, or may have one in a file that cannot be read;
    of a test in a baseline, whether the run that it serves has one."""
    snapshots = run_state(item.config).snapshots
    return state_of(item).in_snapshots or (snapshots is not None and snapshots.has_any(item))


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test asks for us, by a fixture, a marker or its snapshot."""
    return asks_for_us(item) or has_snapshot(item)


def promises_of(item: pytest.Item) -> tuple[str, ...]:
    """What a test promises: the names of its limits, and ``snapshot`` if it has one."""
    return (*limit_names(item), *(("snapshot",) if has_snapshot(item) else ()))


def is_measured(item: pytest.Item) -> bool:
    """Whether a test is measured, because it asks for it or all are."""
    return run_state(item.config).settings.all or concerns_us(item)


def is_judged(item: pytest.Item) -> bool:
    """Whether the whole call is judged by anything: limits, or a snapshot."""
    state = state_of(item)
    kept = state.in_snapshots or (state.snapshot is not None and state.snapshot.profiles)
    return bool(known_marks(item).limits) or kept


def target_of(item: pytest.Item) -> Target:
    """Where a test is measured that asks for numbers, or has a snapshot; found once a try.

    Raises:
        NotJudged: it is marked for CUDA, and there is no device; or its limits are all of a GPU,
            and it is measured on the CPU.
        ProfilerUnavailable: a GPU is required, or CUDA is broken in this process.
    """
    state = state_of(item)
    if state.target is None:
        state.target = _target(item)
    return state.target


def why_unmeasured(item: pytest.Item) -> str:
    """Why a test runs without being measured, as far as that is known."""
    target = state_of(item).target
    return target.unmeasured if target else ""


def _target(item: pytest.Item) -> Target:
    settings, marks = settings_of(item), known_marks(item)
    asked, asks = settings.device, asks_for_us(item)
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
    if has_no_device() and not is_for_cuda:
        return Target("cpu", missing)
    if not is_for_cuda:
        return Target("cuda")  # what measures says what is wrong with it
    if settings.blind == "error" and not has_no_device():
        raise ProfilerUnavailable(missing)
    raise NotJudged(missing)


def _on_gpu(item: pytest.Item) -> Target:
    from pytest_kernelprof.device.inventory import refuse_broken, why_broken

    if run_state(item.config).settings.all and not asks_for_us(item):
        return Target("cpu" if why_broken() else "cuda")  # what it does without is its own affair
    refuse_broken()
    return Target("cuda")


def _on_cpu(marks: Marks) -> DeviceKind:
    if marks.limits and not any(limit.on_cpu for limit in marks.limits):
        names = ", ".join(limit.name for limit in marks.limits)
        raise NotJudged(f"not applicable on the CPU: {names}")
    return "cpu"


def device_to_look_at(item: pytest.Item) -> DeviceKind:
    """The device of a test that asks for none: unlike ``target_of`` it leaves CUDA alone."""
    from pytest_kernelprof.device.inventory import usual_kind, usual_kind_untouched

    asked = settings_of(item).device
    if asked == "cpu":
        return "cpu"
    try:
        return usual_kind() if asked == "cuda" else usual_kind_untouched()
    except Exception:  # a fixture has put something in place of torch's functions
        return "cuda"  # and what is wrong there is told in the test's row


def look_up(item: pytest.Item, device: DeviceKind) -> None:
    """Have the test's snapshots at hand, from its set-up or its first measurement on. None are
    where nothing is profiled, and none judge the baseline of a run against a revision.

    Raises:
        SnapshotError: their file cannot be read, or not be written to.
    """
    state, snapshots = state_of(item), run_state(item.config).snapshots
    if state.snapshot is None and snapshots is not None:
        state.snapshot = snapshots.judge_of(item, device)


def snapshot_judge(item: pytest.Item, target: Target, *, asked: bool) -> SnapshotJudge | None:
    """What judges a test that will be measured by its snapshots.

    Args:
        target: where it is measured, or why it is not.
        asked: whether it asks for numbers. Of another one (--kernelprof-all) a snapshot is made,
            but nothing is brought up for it.
    """
    if target.unmeasured:
        return None
    snapshots = run_state(item.config).snapshots
    if asked or (snapshots is not None and snapshots.updates and _is_up(target.device)):
        look_up(item, target.device)
    return state_of(item).snapshot


def _is_up(device: DeviceKind) -> bool:
    from pytest_kernelprof.device.inventory import cuda_is_up

    try:
        return "torch" in sys.modules and (device == "cpu" or cuda_is_up())
    except Exception:  # a fixture has put something in place of torch's functions
        return False


def is_hooked(config: pytest.Config) -> bool:
    """Whether anybody implements ``pytest_kernelprof_run``."""
    return bool(config.hook.pytest_kernelprof_run.get_hookimpls())


def all_is_wanted(config: pytest.Config) -> bool:
    """Whether somebody reads all that tests took; a worker has no such reader itself."""
    settings = run_state(config).settings
    return bool(settings.run_files) or settings.github or is_hooked(config)


def is_reported(config: pytest.Config) -> bool:
    """Whether anybody reads what tests took, beyond their verdicts."""
    settings, bridged = run_state(config).settings, config.pluginmanager.hasplugin(BRIDGE)
    return settings.report or bool(settings.against) or bridged or all_is_wanted(config)


def timed_by_benchmark(item: pytest.Item) -> bool:
    """Whether pytest-benchmark times a test, whose call phase must not be profiled as a whole."""
    active = item.config.pluginmanager.hasplugin(BRIDGE)
    return active and "benchmark" in getattr(item, "fixturenames", ())


def place_of_test(item: pytest.Item) -> Place:
    """Where the test function begins, decorators included."""
    from pytest_kernelprof.capture.line_annotations import own_file
    from pytest_kernelprof.schema.profile import Place

    path, line = str(item.reportinfo()[0]), item.reportinfo()[1] or 0
    if path != str(item.path):  # a class's that it inherits, or of bytecode that was copied
        function = inspect.unwrap(getattr(item, "obj", None))  # type: ignore[arg-type]
        path = own_file(path, getattr(function, "__globals__", {}))
    return Place(path, line + 1)


def named_here(item: pytest.Item) -> str:
    """Name a test as pytest takes it in the folder that it was started in."""
    file = bestrelpath(item.config.invocation_params.dir, item.path)
    return f"{file}::{item.nodeid.partition('::')[2]}"
