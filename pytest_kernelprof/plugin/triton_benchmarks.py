"""Benchmark files with Triton's ``perf_report`` as tests: the ini key ``kernelprof_benchmarks``.

Each configuration of a benchmark function (a value of x, and a line of its plot) is a test, which
profiles what the function gives to ``do_bench``. The forms are those of ``triton/testing.py``:
``Mark``, ``Benchmark``, ``do_bench`` and ``do_bench_cudagraph``, of Triton 3.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import os
import sys
from collections import Counter
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.python import path_matches_patterns

from pytest_kernelprof.errors import NotJudged
from pytest_kernelprof.gpu.inventory import has_no_device
from pytest_kernelprof.plugin.items import run_state, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_kernelprof.plugin.fixture import KernelProfile
    from pytest_kernelprof.plugin.measuring import MeasuredTest

_TESTING = "triton.testing"
_LONGEST = 60
# They have autotuners, which time with do_bench, too.
_LIBRARIES = ("torch", "triton")
_BACKEND = "MPLBACKEND"

# By its name, a function of triton, and a copy that keeps its code.
_bound: dict[str, tuple[FunctionType, FunctionType]] = {}
_running: list[BenchCalls] = []


class TritonBenchmarks:
    """The plugin of a run that has the ini key."""

    def __init__(self, config: pytest.Config) -> None:
        self._patterns = run_state(config).settings.benchmarks
        self._scripts: list[BenchmarkScript] = []

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> BenchmarkScript | None:
        """A file that matches, where pytest would not take it by itself."""
        if parent.session.isinitpath(file_path) or _is_of_tests(file_path, parent.config):
            return None  # it makes a module of it, below
        return self.pytest_pycollect_makemodule(file_path, parent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> BenchmarkScript | None:
        """The collector of a file that matches."""
        is_script = path_matches_patterns(module_path, self._patterns)
        if module_path.suffix != ".py" or not is_script:
            return None
        script: BenchmarkScript = BenchmarkScript.from_parent(parent, path=module_path)
        self._scripts.append(script)
        return script

    @pytest.hookimpl(trylast=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Benchmarks need a GPU, if nobody says otherwise: a marker, or a hook of a conftest.py."""
        if isinstance(item, BenchmarkTest) and run_state(item.config).settings.device == "auto":
            item.add_marker(pytest.mark.kernelprof(device="cuda"))

    def pytest_report_collectionfinish(self) -> str:
        """Say how many configurations there are besides."""
        number = sum(one.left_out for one in self._scripts)
        key = "kernelprof_benchmark_configs bounds those of a plot"
        return f"benchmark configurations that are not run: {number} ({key})" if number else ""


class BenchmarkTest(pytest.Function):
    """A configuration of a benchmark function."""

    @functools.cached_property
    def id(self) -> Any:
        """What pytest 9.2 and later find it by again: parsed, as where they read it (``--lf``)."""
        return type(self._id).parse(self.nodeid)


class BenchmarkScript(pytest.Module):
    """A file of benchmarks: its functions with ``perf_report``; its tests only where they match
    ``python_files``, as benchmarks have helpers with such names.

    Attributes:
        left_out: the number of configurations beyond those that the ini key allows.
    """

    left_out = 0

    def _getobj(self) -> Any:
        tests = self.path.read_bytes() if _is_of_tests(self.path, self.config) else b"perf_report"
        script = as_a_script(self.path) if b"perf_report" in tests else pytest.MonkeyPatch.context()
        with script as patch:
            with contextlib.suppress(Exception):  # of a broken triton the file itself tells
                testing = importlib.import_module(_TESTING)
                _bind(testing)
                # At its top level a file may run and plot all its benchmarks.
                patch.setattr(testing.Mark, "run", lambda *args, **kwargs: None)
            try:
                return super()._getobj()  # type: ignore[no-untyped-call]
            except SystemExit as error:
                raise self.CollectError(
                    f"{self.path.name} ended with SystemExit({error.code!r}) while it was "
                    "imported; parse arguments and exit below: if __name__ == '__main__'"
                ) from None
            except (RuntimeError, AssertionError) as error:  # of torch and triton, about CUDA
                settings = run_state(self.config).settings
                is_open = settings.device == "auto" and not settings.require_gpu
                if not (is_open and "torch" in sys.modules and has_no_device()):
                    raise
                why = f"no CUDA device, and {self.path.name} is not imported without: {error}"
                raise pytest.skip.Exception(why, allow_module_level=True) from None

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield a test for each configuration of each benchmark function.

        Raises:
            CollectError: a benchmark is not of Triton's form.
        """
        names = vars(self.obj)  # which loads the file, and Triton with it
        found: dict[int, tuple[str, Any]] = {}
        mark: Any = getattr(sys.modules.get(_TESTING), "Mark", ())
        for name, one in names.items():
            if isinstance(one, mark):
                found.setdefault(id(one), (name, one))
            elif isinstance(one, pytest.MarkDecorator) and mark in map(type, one.args):
                raise self.CollectError(
                    f"{name}: got @pytest.mark.{one.name} above perf_report, which hides the "
                    "benchmark; write the marker below perf_report"
                )
        for name, one in found.values():
            yield from self._tests(name, one)
        if _is_of_tests(self.path, self.config):
            yield from super().collect()
        elif not found:
            from pytest_kernelprof.plugin.fixture import KernelprofWarning

            words = "has no function with triton.testing.perf_report at its top level"
            self.warn(KernelprofWarning(f"{self.nodeid} {words}: nothing of it is measured"))

    def _tests(self, name: str, mark: Any) -> Iterator[pytest.Item]:
        several = isinstance(mark.benchmarks, (list, tuple))
        try:
            plots = [
                (configurations(plot), len(plot.line_vals))
                for plot in (mark.benchmarks if several else [mark.benchmarks])
            ]
        except (AttributeError, TypeError, ValueError) as error:
            form = "Benchmark(x_names, x_vals, line_arg, line_vals, line_names, plot_name, args)"
            raise self.CollectError(
                f"{name}: {error}; expected perf_report({form}), or a list of them"
            ) from error
        most, names = run_state(self.config).settings.benchmark_configs, Counter[str]()
        for configs, lines in plots:
            kept = chosen(configs, lines, most)
            self.left_out += len(configs) - len(kept)
            for config_id, values in kept:
                names[config_id] += 1
                again = f"-{names[config_id]}" if names[config_id] > 1 else ""
                call = _test_of(mark.fn, self.path, config_id, values)
                title = f"{name}[{config_id}{again}]"
                yield BenchmarkTest.from_parent(self, name=title, callobj=call)


Configuration = tuple[str, tuple[dict[str, Any], ...]]


def configurations(plot: Any) -> list[Configuration]:
    """Return all configurations of a ``triton.testing.Benchmark``: for each value of x one for each
    line, as ``Mark.run`` calls them.

    Returns:
        Of each its id, and its arguments: those of x, of the line, and the fixed ones.

    Raises:
        AttributeError, TypeError, ValueError: it is not of Triton's form.
    """
    found: list[Configuration] = []
    x_names, lines = list(plot.x_names), list(plot.line_vals)
    for index, x in enumerate(plot.x_vals):
        values = list(x) if isinstance(x, (list, tuple)) else [x] * len(x_names)
        if len(values) != len(x_names):
            raise ValueError(f"got {x!r} for x_names {x_names}")
        at = [f"{name}={_text(one, index)}" for name, one in zip(x_names, values, strict=True)]
        for number, line in enumerate(lines):
            # The name of a line that is no text says more: "fp16" of torch.float16.
            told = line if isinstance(line, str) else [*plot.line_names, *lines][number]
            parts = (_text(plot.plot_name, 0), *at, _text(told, number))
            given = dict(zip(x_names, values, strict=True)), {plot.line_arg: line}, dict(plot.args)
            found.append(("-".join(filter(None, parts)), given))
    if not found:
        raise ValueError(f"the plot {plot.plot_name!r} has no configurations")
    return found


def chosen(configs: Sequence[Configuration], lines: int, most: int) -> list[Configuration]:
    """Return at most so many: of values of x that are spread from the first to the last one, each
    with all its lines.

    Args:
        lines: how many follow each other for one value of x.
    """
    if len(configs) <= most:
        return list(configs)
    values, wanted = len(configs) // lines, max(most // lines, 1)
    places = [round(at * (values - 1) / max(wanted - 1, 1)) for at in range(wanted)]
    return [one for at in places for one in configs[at * lines : (at + 1) * lines]][:most]


def _text(value: object, index: int) -> str:
    """A value in an id; its number where its text is long or differs from run to run."""
    text = str(value).encode("unicode_escape").decode()
    return text if len(text) <= _LONGEST and " at 0x" not in text else f"#{index}"


def _is_of_tests(path: Path, config: pytest.Config) -> bool:
    return path_matches_patterns(path, config.getini("python_files"))


@contextlib.contextmanager
def as_a_script(path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Code runs as that of a script without arguments, whose folder Python looks into first, and
    whose plots open no window.

    Yields:
        What undoes further patches at the end, too.
    """
    folder = str(path.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path)])
        if _BACKEND not in os.environ:
            patch.setenv(_BACKEND, "Agg")
        sys.path.insert(0, folder)
        try:
            yield patch
        finally:  # what the script puts there itself stays
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def _test_of(fn: Callable[..., object], path: Path, name: str, given: Any) -> Callable[..., None]:
    """The test function of a configuration. It has the line and the markers of the benchmark's."""

    @functools.wraps(fn)
    def test(kernel_profile: KernelProfile, request: pytest.FixtureRequest) -> None:
        measured = state_of(request.node).test
        assert measured is not None, "kernel_profile has begun it"
        calls, (of_x, of_line, fixed) = BenchCalls(kernel_profile, measured), given
        if lacking := ", ".join(one for one in _required(fn) if one not in of_x | of_line | fixed):
            raise NotJudged(
                f"nothing to measure: {fn.__name__} needs {lacking}; write them in args= of its "
                "Benchmark, as nothing is given to its run(...)"
            )
        with as_a_script(path), calls.taken():
            fn(**of_x, **of_line, **fixed)
        if not calls.number:
            raise NotJudged(
                f"nothing to measure: {getattr(fn, '__name__', fn)} called neither "
                f"triton.testing.do_bench nor do_bench_cudagraph for {name}"
            )

    test.__signature__ = inspect.signature(test, follow_wrapped=False)  # type: ignore[attr-defined]
    return test


def _required(fn: Callable[..., object]) -> list[str]:
    """The names of the arguments that a function does not go without, in their order."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = inspect.signature(fn).parameters.items()
    return [name for name, one in named if one.kind in kinds and one.default is one.empty]


class BenchCalls:
    """The calls of ``do_bench`` and ``do_bench_cudagraph`` while a benchmark function runs: what
    they are given is profiled in their place.

    Attributes:
        number: of the callables that were profiled.
    """

    def __init__(self, kernel_profile: KernelProfile, test: MeasuredTest) -> None:
        self._kernel_profile, self._test = kernel_profile, test
        self.number, self._is_busy = 0, False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take them. The code of the functions is replaced, not the functions, as files import
        these by name, and keep them in tables and ``partial`` objects."""
        taken = dict(_bound)
        _running.append(self)
        try:
            for name, (function, _) in taken.items():
                function.__code__ = _STAND_INS[name].__code__
            yield
        finally:
            for function, original in taken.values():
                function.__code__ = original.__code__
            _running.remove(self)

    def measure(self, name: str, caller: str, args: Any, kwargs: Any) -> Any:
        """Profile what is given to one of the functions.

        Args:
            name: of the function.
            caller: the module that calls it.

        Returns:
            The time in milliseconds, in the form that is asked for: the median of ``gpu_busy``, on
            the CPU of ``latency``; not a number where nothing was measured.
        """
        original = _bound[name][1]
        if self._is_busy or caller.partition(".")[0] in _LIBRARIES:
            return original(*args, **kwargs)
        asked = inspect.signature(original).bind(*args, **kwargs)
        given, setup = asked.arguments, None
        if (tensors := given.get("grad_to_none")) is not None:
            setup = functools.partial(_forget_gradients, tensors)
        self.number += 1
        self._is_busy = True
        try:
            flushes = False if name == "do_bench_cudagraph" else None  # as that does not
            self._kernel_profile.run(given["fn"], setup=setup, flush_l2=flushes)
        finally:
            self._is_busy = False
        profile = self._test.ledger.last
        took_us = (profile.gpu_busy or profile.latency) if profile is not None else None
        took_ms = math.nan if took_us is None else took_us / 1e3
        if quantiles := given.get("quantiles"):
            return [took_ms] * len(quantiles) if len(quantiles) > 1 else took_ms
        return [took_ms] if given.get("return_mode") == "all" else took_ms


def _forget_gradients(tensors: Iterable[Any]) -> None:
    for tensor in tensors:
        tensor.grad = None


def _bind(testing: Any) -> None:
    """Keep the functions as they are, before a file is loaded that could replace them."""
    for name in _STAND_INS:
        function = getattr(testing, name, None)
        if (
            isinstance(function, FunctionType)
            and function.__globals__ is vars(testing)  # no file has put it there
            and (name not in _bound or _bound[name][0] is not function)
        ):
            code, names = function.__code__, function.__globals__
            original = FunctionType(code, names, name, function.__defaults__)
            original.__kwdefaults__ = function.__kwdefaults__
            _bound[name] = function, original


def call_taken(name: str, args: Any, kwargs: Any) -> Any:
    """One of the functions is called while its code is replaced."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return _running[-1].measure(name, caller, args, kwargs)


# Their code runs in functions of triton, and finds no name of this module there.


def do_bench(*args: Any, **kwargs: Any) -> Any:
    """Stands for that of triton."""
    from pytest_kernelprof.plugin.triton_benchmarks import call_taken

    return call_taken("do_bench", args, kwargs)


def do_bench_cudagraph(*args: Any, **kwargs: Any) -> Any:
    """Stands for that of triton."""
    from pytest_kernelprof.plugin.triton_benchmarks import call_taken

    return call_taken("do_bench_cudagraph", args, kwargs)


_STAND_INS = {"do_bench": do_bench, "do_bench_cudagraph": do_bench_cudagraph}
