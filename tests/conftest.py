"""Lets the tests run pytest on small projects of their own."""

from __future__ import annotations

import builtins
import gc
import importlib
import itertools
import logging
import os
import pkgutil
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import pluggy
import pytest
import warm_python
from _pytest import fixtures
from _pytest.assertion import rewrite
from filelock import FileLock

import pytest_kernelprof

pytest_plugins = ["pytester"]

Once = Callable[[str, Callable[[Path], None]], Path]


def pytest_configure(config: pytest.Config) -> None:
    """Load what inner runs need; xdist's controller runs none."""
    # Inner runs are as wide as a pipe, though xdist's workers have COLUMNS, and shorten the lines
    # of their short summary, which pytest 9 does not do by CI.
    for name in ("COLUMNS", "CI", "BUILD_NUMBER"):
        os.environ.pop(name, None)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        load()
        remember_what_is_installed()
        remember_what_plugins_have()
        # The processes that tests start import torch, which takes half as long again when it is
        # traced, and run what is measured here as well.
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


SHARED = pytest.StashKey[Path]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before xdist starts workers, and after the plugin has set what torch reads when it is loaded.

    To load torch with its compiler takes 6 s: once for all workers, where none of them is to be
    measured by coverage, which would not see them begin, and not on a GPU, whose profiler is not to
    be loaded before a process is forked."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("tx", None):
        return
    folder = tempfile.TemporaryDirectory(prefix="workers-")
    config.add_cleanup(folder.cleanup)
    config.stash[SHARED] = Path(folder.name)
    plain = set(config.option.tx) == {"popen"} and shutil.which("nvidia-smi") is None
    if plain and hasattr(os, "pidfd_open") and "COVERAGE_PROCESS_CONFIG" not in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        python = warm_python.make(Path(folder.name), os.getpid(), compiler=True)
        config.option.tx = [f"popen//python={python}"] * len(config.option.tx)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """What workers share in this run."""
    node.workerinput["shared"] = str(node.config.stash[SHARED])


TESTS = Path(__file__).parent


def is_compiled(file: Path) -> bool:
    kept = file.parent / "__pycache__" / f"{file.stem}{rewrite.PYC_TAIL}"
    return kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime


@contextmanager
def compiled_once(config: pytest.Config) -> Iterator[None]:
    """To compile all test files takes twice as long as the rest of their collection: one worker
    does it, and the others wait for what it keeps."""
    if not hasattr(config, "workerinput") or all(map(is_compiled, TESTS.rglob("test_*.py"))):
        yield
        return
    done = Path(config.workerinput["shared"], "collected")
    with FileLock(f"{done}.lock"):
        is_first = not done.exists()
        if is_first:
            yield
            done.touch()
    if not is_first:
        yield


def set_aside() -> None:
    """Each inner run collects garbage, and torch, the tests and what they keep are millions of
    objects to look through: they stay."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    set_aside()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """What a file of tests keeps for all that follow is set aside after it."""
    done = yield
    if nextitem is not None and nextitem.path != item.path:
        set_aside()
    return done


TRACER = pytest.StashKey[Any]()


@contextmanager
def traced(tracer: Any) -> Iterator[None]:
    """Coverage, or nobody, looks at each line: all code takes twice as long then, pytest's and
    torch's, too."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(before)


def untraced() -> AbstractContextManager[None]:
    return traced(None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Ours is loaded by now: what follows are the test files."""
    with untraced(), compiled_once(session.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Of a test only fixtures and the function itself are looked at, not how pytest gets there."""
    session.config.stash[TRACER] = sys.gettrace()
    with untraced():
        return (yield)


def tracer_for(node: pytest.Item | pytest.Collector) -> Any:
    """Coverage; nobody where a test does much of what others have done before it."""
    return None if node.get_closest_marker("bulk") else node.config.stash.get(TRACER, None)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    with traced(tracer_for(request.node)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    with traced(tracer_for(pyfuncitem)):
        return (yield)


def load() -> None:
    # The tensors are small: a second thread only waits, on a busy machine for tens of milliseconds.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with untraced():
        import torch
    # Pytester forgets modules that an inner run loads. torch cannot be loaded twice, and our own
    # state (the profiler is brought up once per process) must not be lost: so all are loaded
    # before.
    for module in pkgutil.walk_packages(pytest_kernelprof.__path__, "pytest_kernelprof."):
        importlib.import_module(module.name)
    with untraced():
        # So must what torch loads when it first profiles.
        profile = importlib.import_module("pytest_kernelprof.api").profile
        profile(torch.ones, 1, device="cpu", rounds=1)
        # And what it loads when it first compiles.
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
        importlib.import_module("torch._inductor.compile_fx")
    forget_loggers()


def forget_loggers() -> None:
    """In each phase of each test pytest goes twice through all loggers that there are, for those
    that do not propagate: torch's, 380 with 80 of that kind, were half of a small test."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True  # what pytest is after
    logging.root.manager.loggerDict.clear()


class Installed(packages.PathDistribution):
    """An installed distribution whose files are read once."""

    metadata = cached_property(packages.PathDistribution.metadata.fget)
    entry_points = cached_property(packages.PathDistribution.entry_points.fget)
    files = cached_property(packages.PathDistribution.files.fget)


def remember_what_is_installed() -> None:
    """Each inner run asks all that is installed for plugins, which takes a quarter of its time: of
    a hundred distributions ten have some. Triton finds its own in the same way."""
    found = [
        Installed(one._path) if isinstance(one, packages.PathDistribution) else one
        for one in packages.distributions()
        if any(point.group in ("pytest11", "triton.backends") for point in one.entry_points)
    ]
    packages.distributions = lambda: found


INSTALLED = {"_pytest", "execnet", "pytest_benchmark", "pytest_cov", "pytest_kernelprof", "xdist"}


def remember_what_plugins_have() -> None:
    """Each inner run looks through all that 40 plugins define, for hooks and for fixtures, which
    takes half of its time: fixtures of installed ones stay the same."""
    known: dict[object, list[str]] = {}

    def names_of_fixtures(holder: object) -> list[str]:
        owner = holder if isinstance(holder, (type, types.ModuleType)) else type(holder)
        module = owner.__module__ if isinstance(owner, type) else owner.__name__
        if module.partition(".")[0] not in INSTALLED:
            return dir(holder)
        if owner not in known:
            known[owner] = [
                name
                for name in dir(owner)
                if isinstance(getattr(owner, name, None), fixtures.FixtureFunctionDefinition)
            ]
        return known[owner]

    def names_of_hooks(plugin: object) -> list[str]:
        return [name for name in dir(plugin) if name.startswith("pytest_")]  # no other is one

    fixtures.dir = names_of_fixtures
    pluggy._manager.dir = names_of_hooks


# Installed for tests/integration/test_company.py: in other inner runs they would shuffle tests,
# take over coroutines, and so on. Likewise, by pyproject.toml, in this one. The last two take a
# fifth of the time of a small run.
NOT_UNASKED = (
    *("asyncio", "pytest_forked", "randomly", "rerunfailures", "timeout"),
    *("benchmark", "pytest_cov"),
)


# By the beginning of an inner run's argument, whose it is; not all are in all environments.
OPTIONS_OF = {
    **dict.fromkeys(("-n", "--tx", "--dist", "--maxprocesses", "-pxdist"), "xdist"),
    **dict.fromkeys(("--benchmark", "-pbenchmark"), "pytest_benchmark"),
    "--reruns": "pytest_rerunfailures",
}


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An inner run loads these plugins only where it names them, and is looked at where we are."""
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in NOT_UNASKED))
    # Tests write a file again within a second, in as many bytes: bytecode of the first is not told
    # from that of the second, by Python nor by pytest before 9.2.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # An inner run that breaks off, as by Python 3.11's "AST constructor recursion depth mismatch"
    # (CPython gh-106905), leaves what its tests have patched to the tests after this one.
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    run, start, tracer = pytester.inline_run, pytester.runpytest_subprocess, sys.gettrace()

    def inline_run(*args: Any, plugins: Sequence[object] = (), **options: Any) -> Any:
        skip_without_plugins_of(args)
        with untraced():
            looking = [OurHooks(tracer)] if tracer else []
            return run(*args, plugins=[*plugins, *looking], **options)

    def runpytest_subprocess(*args: Any, **options: Any) -> pytest.RunResult:
        skip_without_plugins_of(args)
        return start(*args, **options)

    monkeypatch.setattr(pytester, "inline_run", inline_run)
    monkeypatch.setattr(pytester, "runpytest_subprocess", runpytest_subprocess)
    return pytester


def skip_without_plugins_of(args: Sequence[object]) -> None:
    """Where a plugin is missing, a run that has its options is none."""
    given = [str(arg) for arg in args]
    given += [f"-p{name}" for flag, name in itertools.pairwise(given) if flag == "-p"]
    for start, module in OPTIONS_OF.items():
        if any(arg.startswith(start) for arg in given):
            pytest.importorskip(module)


class OurHooks:
    """A plugin of an inner run: coverage looks at the hooks that this package has a part in, and
    at what they call, which fixtures and tests are among."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._before: list[Any] = []

    def pytest_plugin_registered(self, plugin: object, manager: pytest.PytestPluginManager) -> None:
        if plugin is self:
            manager.add_hookcall_monitoring(self._begin, self._end)

    def _begin(self, name: str, hooks: Sequence[pluggy.HookImpl], arguments: object) -> None:
        self._before.append(sys.gettrace())
        if any(hook.function.__module__.startswith("pytest_kernelprof.") for hook in hooks):
            sys.settrace(self._tracer)

    def _end(self, outcome: object, name: str, *_: object) -> None:
        before = self._before.pop()
        # What was left to be done at the end follows.
        sys.settrace(self._tracer if name == "pytest_unconfigure" else before)


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner run is no worker's: in a worker pytest-benchmark, for one, disables itself."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Once:
    """A folder that the first test to ask for it fills, for this whole run with all its workers."""
    root = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        root = root.parent  # of which each worker has a part

    def folder(name: str, fill: Callable[[Path], None]) -> Path:
        path, done = root / name, root / f"{name}.done"
        with FileLock(f"{path}.lock"):
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                fill(path)
                done.touch()
        return path

    return folder


@pytest.fixture(scope="session")
def python(request: pytest.FixtureRequest, once: Once) -> str:
    """An interpreter whose processes have torch loaded already; see ``warm_python``."""
    if not hasattr(os, "pidfd_open"):
        return sys.executable
    if (made := of_workers(request.config, "python")) is not None:
        return made
    owner = os.getppid() if hasattr(request.config, "workerinput") else os.getpid()

    def fill(folder: Path) -> None:
        warm_python.make(folder, owner)

    return str(once("python", fill) / "python")


@pytest.fixture(scope="session")
def compiling_python(request: pytest.FixtureRequest, python: str) -> str:
    """The same with torch's compiler, where workers are forked from such a one."""
    return of_workers(request.config, "compiling") or python


def of_workers(config: pytest.Config, name: str) -> str | None:
    """What workers are forked from, or what that has been before it loaded the compiler."""
    path = Path(getattr(config, "workerinput", {}).get("shared", ""), name)
    return str(path) if path.is_absolute() and path.exists() else None


PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.fixture
def run_apart(pytester: pytest.Pytester, python: str) -> Callable[..., pytest.RunResult]:
    """Run pytest in a process of its own, which has loaded torch, and nothing of ours."""
    return partial(pytester.run, python, "-c", PYTEST, "-p", "no:cacheprovider")


@pytest.fixture
def compile_apart(
    pytester: pytest.Pytester, compiling_python: str
) -> Callable[..., pytest.RunResult]:
    """The same with torch's compiler, which is not watched yet."""
    return partial(pytester.run, compiling_python, "-c", PYTEST, "-p", "no:cacheprovider")
