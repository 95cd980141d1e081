"""What the plugin keeps and knows of a run and of a test, on pytest's own objects: its state, the
markers of the test, the device that it is measured on, and who reads its results.

Nothing here loads torch or a record before a test needs it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from _pytest.pathlib import bestrelpath

from pytest_kernelprof.errors import NO_GPU, MarkerError, NotJudged, ProfilerUnavailable
from pytest_kernelprof.limits import marks as markers
from pytest_kernelprof.plugin.collector import PREPARED, Collector

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.measuring import AfterCall, MeasuredTest
    from pytest_kernelprof.plugin.run_baseline import Baseline
    from pytest_kernelprof.plugin.run_snapshots import Snapshots
    from pytest_kernelprof.plugin.settings import Settings
    from pytest_kernelprof.plugin.snapshot_judge import SnapshotJudge
    from pytest_kernelprof.profiler.triton_targets import Targets
    from pytest_kernelprof.records import comparison, document, profile, recording
    from pytest_kernelprof.records.recording import Environment

CUDA_HINT = (
    "there is no CUDA device here; if the test needs one, mark it "
    '@pytest.mark.kernelprof(device="cuda"), or set the ini key kernelprof_device = cuda for all: '
    "then it is skipped without one"
)

_DISABLED = "--kernelprof-disable: nothing is measured"
_NO_MARKS = markers.Marks()


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
        has_bridge: whether pytest-benchmark takes part.
        in_its_table: the node ids of the tests in pytest-benchmark's table, if it prints one.
        run_of: makes the record of the run with these tests, where anybody reads that.
        comparisons: how the run compares with each of its baselines, those of revisions first.
        after_call: is called after each measured call of a run against a revision.
        baseline_of: looks up what a run document has of a test, where one is compared with.
        snapshots: where snapshots are looked up; None in a run that profiles nothing.
        ignored_marks: the files whose ``pytestmark`` pytest does not read, each with our markers
            in it.
    """

    settings: Settings

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.collector = Collector(getattr(config, "workerinput", {}).get(PREPARED))
        self.measures = self.serves = self.quiet = self.has_bridge = False
        self.expected = ""
        self.in_its_table: set[str] = set()
        self.run_of: Callable[[Iterable[document.Test]], document.Run] | None = None
        self.comparisons: list[Callable[[], comparison.RunComparison | None]] = []
        self.after_call: AfterCall | None = None
        self.baseline_of: Callable[[str], Baseline | None] | None = None
        self.snapshots: Snapshots | None = None
        self.ignored_marks: list[tuple[str, tuple[str, ...]]] = []

    @property
    def is_wanted_whole(self) -> bool:
        """Whether somebody reads all that tests took; a worker has no such reader itself."""
        hooked = self._config.hook.pytest_kernelprof_run.get_hookimpls()
        return bool(self.settings.run_files or self.settings.github or hooked)

    @property
    def is_read(self) -> bool:
        """Whether anybody reads the record of the run."""
        return bool(self.settings.report or self.settings.compares) or self.is_wanted_whole


class Target(NamedTuple):
    """Where a test is measured.

    Attributes:
        device: what its code runs on.
        unmeasured: why it runs without being measured, a few words and a colon first; empty where
            it is measured.
        compiles: what its kernels are compiled for, where there is no GPU that could run them.
    """

    device: recording.DeviceKind
    unmeasured: str = ""
    compiles: Targets | None = None


class ItemState:
    """What the plugin keeps and knows of a test.

    Attributes:
        in_snapshots: whether this run is a baseline, and the run that it serves has a snapshot of
            the test.
        target: where it is measured, from its set-up on; None before ``find_target``.
        snapshot: its snapshots, where it has any or will have some.
        test: what its measurements depend on, from the first one on.
        whole_call: ends its call phase, while that is profiled as a whole.
        taken: what it took and no report has yet.
        has_benchmark: whether it has the fixture of pytest-benchmark.
        fetched: the names of those of our fixtures that it has by now.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item, self.run = item, run_state(item.config)
        self._early: tuple[int, ...] | None = None
        # Read again where markers have come since.
        self._marks = functools.lru_cache(1)(lambda _, early: markers.marks_of(item, early))
        self.in_snapshots = self.has_benchmark = False
        self.fetched: tuple[str, ...] = ()
        self.begin_attempt()
        self.whole_call: ExitStack | None = None
        self.taken: document.Test | None = None

    def begin_attempt(self) -> None:
        """Forget what an earlier try of the test has found: plugins that retry a test call its
        phases without reports between."""
        self.target: Target | None = None
        self.snapshot: SnapshotJudge | None = None
        self.test: MeasuredTest | None = None

    def note_defaults(self) -> None:
        """Before a test is set up: what it has by now and is not written on it, hooks gave it."""
        self._early = self._standing()

    @property
    def marks(self) -> markers.Marks:
        """What the markers of the test say. A fixture or the test itself may have added some since.

        Raises:
            MarkerError: as ``marks_of``.
        """
        if not markers.is_marked(self._item):  # as most tests of most users
            return _NO_MARKS
        standing = self._standing()
        return self._marks(standing, standing if self._early is None else self._early)

    def _standing(self) -> tuple[int, ...]:
        return tuple(id(mark) for node in self._item.listchain() for mark in node.own_markers)

    @property
    def settings(self) -> Settings:
        """The settings of the run, with the options of the test's marker in their place.

        Raises:
            MarkerError: a marker is malformed.
        """
        return self.run.settings.with_markers(self.marks.options)

    @property
    def fixtures(self) -> Sequence[str]:
        """The names of the fixtures that the test requests, or has fetched by name."""
        return (*getattr(self._item, "fixturenames", ()), *self.fetched)

    @property
    def asks(self) -> bool:
        """Whether the test asks for numbers, by the fixture or a marker."""
        return "kernel_profile" in self.fixtures or markers.is_marked(self._item)

    @property
    def concerns_us(self) -> bool:
        """Whether the test asks for us, by a fixture, a marker or its snapshot."""
        return self.asks or self.has_snapshot

    @property
    def has_snapshot(self) -> bool:
        """Whether the test has a snapshot for any device, or may have one in a file that cannot be
        read; of a test in a baseline, whether the run that it serves has one."""
        found = self.run.snapshots
        return self.in_snapshots or (found is not None and found.has_any(self._item))

    @property
    def is_measured(self) -> bool:
        """Whether the test is measured, because it asks for it or all are."""
        return self.run.settings.all or self.concerns_us

    @property
    def promises(self) -> tuple[str, ...]:
        """What the test promises: the names of its limits, and ``snapshot`` if it has one."""
        return (*markers.limit_names(self._item), *(("snapshot",) if self.has_snapshot else ()))

    @property
    def is_judged(self) -> bool:
        """Whether the whole call is judged by anything: limits, or a snapshot."""
        kept = self.in_snapshots or (self.snapshot is not None and self.snapshot.profiles)
        return bool(self.marks.limits) or kept

    @property
    def is_benchmarked(self) -> bool:
        """Whether pytest-benchmark times the test, whose call phase must not be profiled then."""
        return self.run.has_bridge and "benchmark" in self.fixtures

    @property
    def why_unmeasured(self) -> str:
        """Why the test runs without being measured, as far as that is known."""
        return self.target.unmeasured if self.target else ""

    @property
    def lacks_gpu(self) -> str:
        """Why the test is an error, whatever has ended it: it has loaded no trace, and all else
        needs a GPU that is required."""
        why, loads = self.why_unmeasured, self.test is not None and self.test.ledger.loads
        return why if why.startswith(NO_GPU) and not loads else ""

    @functools.cached_property
    def place(self) -> profile.Place:
        """Where the test function begins, decorators included."""
        from pytest_kernelprof.profiler.line_annotations import own_file
        from pytest_kernelprof.records import profile

        item = self._item
        reported, line, _ = item.reportinfo()
        path = str(reported)
        if path != str(item.path):  # a class's that it inherits, or of bytecode that was copied
            function = inspect.unwrap(getattr(item, "obj", None))  # type: ignore[arg-type]
            path = own_file(path, getattr(function, "__globals__", {}))
        return profile.Place(path, (line or 0) + 1)

    def warn(self, words: str) -> None:
        """Warn about the test, in pytest's summary of warnings."""
        from pytest_kernelprof.plugin.fixture import KernelprofWarning

        self._item.warn(KernelprofWarning(words))

    def as_told(self) -> document.Test:
        """The test as a failure tells of it: by how pytest takes it here; with the line of its
        markers, unless it has given itself further limits."""
        from pytest_kernelprof.records.document import Test

        given = self.test.ledger.limits if self.test else ()
        names = tuple(dict.fromkeys(one.name for one in given))
        at = self.place if len(given) <= len(self.marks.limits) else None
        file = bestrelpath(self._item.config.invocation_params.dir, self._item.path)
        named_here = f"{file}::{self._item.nodeid.partition('::')[2]}"
        return Test(named_here, place=at, limits=names)

    def refuse_ignored_marks(self) -> None:
        """Raise where a ``pytestmark`` of ours stands in a conftest.py or an ``__init__.py`` around
        the test: pytest reads none there, so it would limit nothing, and the test would pass.

        Raises:
            MarkerError: with the hook to write instead.
        """
        for file, names in self.run.ignored_marks:
            if Path(file).parent in self._item.path.parents:
                raise MarkerError(
                    f"pytestmark in {file}: {', '.join(names)} limits nothing, because pytest does "
                    "not read pytestmark there; to give all tests of the folder a default, write "
                    "in its conftest.py: def pytest_itemcollected(item): "
                    "item.add_marker(pytest.mark.max_kernels(10))"
                )

    def find_target(self) -> Target:
        """Where a test is measured that asks for numbers, or has a snapshot; found once a try.

        Raises:
            NotJudged: it is marked for CUDA, and there is no device; or its limits are all of a
                GPU, and it is measured on the CPU; or its kernels cannot be compiled.
            ProfilerUnavailable: a GPU is required, or CUDA is broken in this process.
        """
        if self.target is None:
            self.target = self._find_target()
        return self.target

    def _find_target(self) -> Target:
        settings = self.settings
        is_for_cuda = settings.device == "cuda" and self.asks
        if settings.disable and not is_for_cuda:
            return Target("cpu", _DISABLED)
        if settings.device == "cpu":
            return self._compiled() or self._on_cpu()
        from pytest_kernelprof.gpu import inventory

        missing = inventory.why_no_gpu()
        if not missing:
            if settings.disable:
                return Target("cpu", _DISABLED)
            if settings.all and not self.asks:  # what it does without is its affair
                return Target("cpu" if inventory.why_broken() else "cuda")
            inventory.refuse_broken()
            return Target("cuda")
        if not self.asks:  # it has a snapshot, which is compared where it can be
            return Target("cpu", missing if settings.device == "cuda" else "")
        if settings.require_gpu:
            if "kernel_profile" not in self.fixtures:
                raise ProfilerUnavailable(f"{NO_GPU}{missing}")
            return Target("cpu", NO_GPU + missing)  # it may only load traces
        if self._targets and not settings.disable and inventory.has_no_device():
            if compiled := self._compiled():
                return compiled
            missing += "; TRITON_INTERPRET is set, so Triton compiles nothing for its targets"
        if settings.device == "auto" and "kernelprof_device" in self.fixtures:
            return self._on_cpu()
        if not is_for_cuda:  # what measures says what is wrong with a device
            return Target("cpu", missing) if inventory.has_no_device() else Target("cuda")
        if settings.blind == "error" and not inventory.has_no_device():
            raise ProfilerUnavailable(missing)
        raise NotJudged(missing)

    @property
    def _targets(self) -> tuple[str, ...]:
        """What its kernels are compiled for; a test that measures nothing runs as ever, also where
        a whole module has targets: else a skip would hide its failures."""
        measures = self.marks.limits or "kernel_profile" in self.fixtures
        return self.settings.targets if measures else ()

    def _compiled(self) -> Target | None:
        """The target of a test whose kernels are compiled for others, and not run."""
        names = self._targets
        if not names:
            return None
        from pytest_kernelprof.profiler.compiled_code import triton_interprets
        from pytest_kernelprof.profiler.triton_targets import Targets
        from pytest_kernelprof.summary.wording import compiled_for

        if triton_interprets():  # then the test can run without a GPU
            return None
        targets = Targets(names)
        with targets.standing_in():  # which tells whether it can
            return Target("cuda", f"{compiled_for(names)}: there is no GPU", targets)

    @property
    def standing_in(self) -> AbstractContextManager[None]:
        """What stands for the GPUs that the test's kernels are compiled for, if they are."""
        compiles = self.target.compiles if self.target else None
        return compiles.standing_in() if compiles else nullcontext()

    def _on_cpu(self) -> Target:
        limits = self.marks.limits
        if limits and not any(limit.on_cpu for limit in limits):
            raise NotJudged(markers.not_on_the_cpu(limit.name for limit in limits))
        return Target("cpu")

    def device_to_look_at(self) -> recording.DeviceKind:
        """The device of a test that asks for none: unlike ``find_target`` it leaves CUDA alone."""
        from pytest_kernelprof.gpu.inventory import usual_kind, usual_kind_untouched

        asked = self.settings.device
        if asked == "cpu":
            return "cpu"
        try:
            return usual_kind() if asked == "cuda" else usual_kind_untouched()
        except Exception:  # a fixture has put something in place of torch's functions
            return "cuda"  # and the test's row says what is wrong there

    def find_snapshot(self, target: Target, *, asked: bool) -> SnapshotJudge | None:
        """What judges the test by its snapshots, from its set-up or its first measurement on. None
        where nothing is profiled, and none for the baseline of a run against a revision.

        Args:
            target: where it is measured, or why it is not.
            asked: whether it asks for numbers. Of another one (--kernelprof-all) a snapshot is
                made, but nothing is brought up for it.

        Raises:
            SnapshotError: their file cannot be read, or not be written to.
        """
        snapshots = self.run.snapshots
        if target.unmeasured or snapshots is None:
            return None
        wanted = asked
        if not asked and snapshots.updates and "torch" in sys.modules:
            from pytest_kernelprof.plugin.measuring import is_cuda_up

            wanted = target.device == "cpu" or is_cuda_up(otherwise=False)
        if wanted and self.snapshot is None:
            self.snapshot = snapshots.judge_of(self._item, target.device)
        return self.snapshot

    def find_snapshot_of(self, environment: Environment) -> SnapshotJudge | None:
        """Find what judges the test by its snapshots of a trace's device, in place of that of the
        device here.

        Raises:
            SnapshotError: as of ``find_snapshot``.
        """
        if self.run.snapshots is not None:
            device, name = environment.kind, environment.device
            self.snapshot = self.run.snapshots.judge_of(self._item, device, name)
        return self.snapshot


_RUN = pytest.StashKey[RunState]()
_ITEM = pytest.StashKey[ItemState]()


def run_state(config: pytest.Config) -> RunState:
    """What is kept of a run."""
    if (state := config.stash.get(_RUN, None)) is None:
        config.stash[_RUN] = state = RunState(config)
    return state


def state_of(item: pytest.Item) -> ItemState:
    """What is kept of a test."""
    if (state := item.stash.get(_ITEM, None)) is None:
        item.stash[_ITEM] = state = ItemState(item)
    return state


def find_ignored_marks(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note the files around tests whose ``pytestmark`` pytest does not read."""
    packages = {getattr(getattr(item, "module", None), "__package__", None) for item in items}
    paths = (package.split(".") for package in packages if package)
    around = {name for path in paths for name in accumulate(path, "{}.{}".format)}
    modules = [sys.modules[name] for name in around if name in sys.modules]
    modules += [
        plugin
        for plugin in config.pluginmanager.get_plugins()
        if Path(getattr(plugin, "__file__", None) or "").name == "conftest.py"
    ]
    found = {module.__file__: markers.names_in_vain(module) for module in modules}
    state = run_state(config)
    state.ignored_marks = [(file, names) for file, names in found.items() if file and names]
