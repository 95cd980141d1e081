"""Record the Triton kernels that code would launch on a GPU that is not there, and compile them.

While ``Targets.standing_in`` lasts, torch and Triton answer as for a target ("sm_90", "gfx942").
``JITFunction.run`` compiles for it (what it made stays in Triton's cache, by the target's name) and
launches nothing; ``Autotuner.run`` does so for each configuration. All tensors are on "cuda", and
their data on the CPU; no kernel writes to them, and new ones hold zeros. What only a GPU knows (how
many SMs it has) is not guessed: who asks for it ends the record.

What Triton asks of a driver is in ``triton/backends/driver.py``, how it compiles and launches in
``triton/runtime/jit.py`` and ``autotuner.py``. A ``TorchFunctionMode`` sees calls of torch and
attributes of tensors ("Extending torch Python API" in PyTorch's notes), but no backward pass.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from traceback import walk_stack, walk_tb  # before a test can patch it
from types import FrameType
from typing import Any, NoReturn

from pytest_kernelprof.errors import NotJudged, said_by
from pytest_kernelprof.gpu.inventory import bound
from pytest_kernelprof.profiler.line_annotations import file_of
from pytest_kernelprof.profiler.triton_kernels import needs_of
from pytest_kernelprof.records.profile import Kernel

_LIBRARIES = ("torch", "triton", "pytest_kernelprof", "contextlib", "_pytest", "pluggy")
"""The modules whose lines launch a kernel, or ask, for those who call them."""

Launch = Mapping[str, tuple[Kernel, ...]]
"""By target the kernel of a launch; of an autotuned one that of each configuration."""


@dataclass(slots=True, eq=False)
class Recorded:
    """What code would have launched.

    Attributes:
        launches: in order.
        ended: why the code ended early, in words; what it would launch after that is not seen.
    """

    launches: list[Launch] = field(default_factory=list)
    ended: str = ""

    def end(self, error: BaseException) -> None:
        """Note what has ended the code, and its line. A question that nobody can answer came
        first, whatever follows from it."""
        line = os.path.basename(_line_of([*walk_tb(error.__traceback__)][::-1]))
        ours = str(error).partition(": ")[2] if isinstance(error, NotJudged) else ""
        why = ours or said_by(error)
        self.ended = self.ended or (why if why.endswith(line) else f"{why} at {line}")


def _line_of(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The innermost line that is not one of a library; empty if there is none."""
    for frame, line in frames:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES:
            return f"{file_of(frame)}:{line}"
    return ""


class Targets:
    """Stands for GPUs that are not there.

    Args:
        names: of the targets, as "sm_90" or "gfx942".
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._stands, self._compiling = False, ""
        self._recorded: Recorded | None = None
        self._configurations: list[Launch] | None = None

    @contextlib.contextmanager
    def recording(self, names: Sequence[str], recorded: Recorded) -> Iterator[None]:
        """Record what the block launches, for these of the targets alone."""
        before = self._names, self._recorded
        self._names, self._recorded = names, recorded
        try:
            yield
        except BaseException as error:
            recorded.end(error)
            raise
        finally:
            self._names, self._recorded = before

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[None]:
        """Have torch and Triton answer for the targets until the block ends.

        Raises:
            NotJudged: Triton is not installed, or has other names than those that we know.
        """
        with contextlib.ExitStack() as undoing:
            if not self._stands:
                try:
                    self._stand_in(undoing, bound().module)
                except (ImportError, AttributeError, KeyError) as error:
                    why = f"targets: kernels cannot be compiled: {said_by(error)}"
                    raise NotJudged(why) from error
            yield

    def _stand_in(self, undoing: contextlib.ExitStack, torch: Any) -> None:
        def put(owner: Any, **values: Any) -> None:
            for name, value in values.items():
                undoing.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, value)

        from torch.autograd.function import BackwardCFunction
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.driver import driver
        from triton.runtime.jit import JITFunction

        # What torch.compile would generate is not seen. It is loaded here, as its tables have the
        # functions that are replaced below.
        undoing.enter_context(torch.compiler.set_stance("fail_on_recompile"))
        self._stands = True
        undoing.callback(setattr, self, "_stands", False)
        undoing.callback(vars(driver).update, dict(vars(driver)))
        driver.set_active(_Double(self._of_driver))
        put(JITFunction, run=self._launching(JITFunction.run))
        put(Autotuner, run=self._tuning())
        put(torch, version=_Double(functools.partial(self._of_version, torch.version)))
        put(torch.autocast, __enter__=self._casting(torch.autocast.__enter__))
        put(torch.cuda, **self._of_cuda())
        mode = _mode_of(torch)
        passes = {k: v for k, v in vars(BackwardCFunction).items() if k in ("apply", "apply_boxed")}
        put(BackwardCFunction, **{name: _within(mode, one) for name, one in passes.items()})
        undoing.enter_context(mode)

    # What is asked of a GPU.

    def unknown(self, what: str, why: str = "is known only on a GPU") -> NoReturn:
        """End what is recorded: somebody asks what only a GPU knows.

        Raises:
            NotJudged: always, with the line that asks.
        """
        line = os.path.basename(_line_of(walk_stack(sys._getframe())))
        words = f"{what} {why}, and is asked for at {line}"
        if self._recorded is not None:
            self._recorded.ended = self._recorded.ended or words
        raise NotJudged(f"compiled, not run: {words}")

    def _one(self, what: str) -> str:
        """The target, to answer what differs between targets."""
        if not self._compiling and len(self._names) > 1:
            self.unknown(what, "is not the same for all targets (kernel_profile(fn) asks for each)")
        return self._compiling or self._names[0]

    def _of_driver(self, name: str) -> Any:
        """Of Triton's driver; by the device Triton keeps what it has compiled."""
        answers: dict[str, Callable[..., Any]] = {
            "get_current_target": lambda: _gpu_of(self._one("the target")),
            "get_current_device": lambda: self._compiling or 0,
            "get_current_stream": lambda device=None: 0,
            "get_active_torch_device": lambda: bound().module.device("cuda", 0),
        }
        return answers.get(name) or self.unknown(f"{name} of Triton's driver")

    def _of_version(self, version: Any, name: str) -> Any:
        """Of ``torch.version``: a build for the vendor of the target, whose version is unknown."""
        if name not in ("cuda", "hip"):
            return getattr(version, name)
        vendor = "hip" if self._one(f"torch.version.{name}").startswith("gfx") else "cuda"
        return "unknown" if name == vendor else None

    def _of_device(self, name: str) -> Any:
        """Of its properties those that a target tells."""
        if name not in ("major", "minor", "warp_size", "gcnArchName"):
            self.unknown(name)
        target = self._one(name)
        major, minor = _capability(target)
        known = {"major": major, "minor": minor, "warp_size": _gpu_of(target).warp_size}
        return known.get(name, target)

    def _of_cuda(self) -> dict[str, Any]:
        """The functions of ``torch.cuda`` by name; streams and events do nothing."""

        def zero(*args: Any, **kwargs: Any) -> int:
            return 0

        def stream(*args: Any, **kwargs: Any) -> Any:
            return _Double(lambda name: 0 if name == "cuda_stream" else zero)

        return {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            **dict.fromkeys(("current_device", "set_device", "synchronize"), zero),
            **dict.fromkeys(("_exchange_device", "_maybe_exchange_device"), zero),
            **dict.fromkeys(("Stream", "Event", "current_stream", "default_stream"), stream),
            "stream": contextlib.nullcontext,
            "get_device_capability": lambda device=None: _capability(self._one("the capability")),
            "get_device_properties": lambda device=None: _Double(self._of_device),
            "get_device_name": lambda device=None: self.unknown("the name of the device"),
        }

    def _casting(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        def cast(autocast: Any) -> Any:
            if autocast.device == "cuda" and autocast._enabled:
                self.unknown("what torch.autocast casts")
            return enter(autocast)

        return cast

    # Launches.

    def _launching(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """What stands for ``JITFunction.run``."""

        def launch(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            compiles = functools.partial(run, function, *args, grid=grid, warmup=True, **kwargs)
            if warmup:
                return self._compile(compiles, self._one("the kernel"))
            parameters = function.signature.parameters.values()
            given = {one.name: one.default for one in parameters if one.default is not one.empty}
            given |= {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
            size = tuple(map(int, grid(given) if callable(grid) else grid))
            if 0 not in size and self._recorded is not None:  # else Triton launches nothing
                make = functools.partial(self._made, compiles, function.__name__, size)
                self._note({target: (make(target),) for target in self._names})
            return None

        return launch

    def _tuning(self) -> Callable[..., Any]:
        """What stands for ``Autotuner.run``: each configuration that it would try."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> None:
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            tried: list[Launch] = []
            outer, self._configurations = self._configurations, tried
            try:
                configs = tuner.configs
                for one in tuner.prune_configs(kwargs) if len(configs) > 1 else configs:
                    given = one.all_kwargs()
                    if one.pre_hook is not None:
                        one.pre_hook({**tuner.nargs, **kwargs, **given})
                    tuner.fn.run(*args, **kwargs, **given)
            finally:
                self._configurations, tuner.nargs = outer, None
            for names in tried[:1]:
                self._note({name: tuple(chain(*(one[name] for one in tried))) for name in names})

        return run

    def _note(self, launch: Launch) -> None:
        """Keep a launch, or one configuration of it."""
        if self._configurations is not None:
            self._configurations.append(launch)
        elif self._recorded is not None and not self._recorded.ended:
            self._recorded.launches.append(launch)

    def _made(
        self, compiles: Callable[[], Any], name: str, size: tuple[int, ...], target: str
    ) -> Kernel:
        """The kernel as it is compiled for a target."""
        try:
            compiled = self._compile(compiles, target)
            registers, shared, spills = needs_of(compiled)
        except Exception as error:
            return _kernel(name, size, said_by(error))
        threads = compiled.metadata.num_warps * compiled.metadata.target.warp_size
        return _kernel(compiled.name, size, spills, threads, registers, shared)

    def _compile(self, compiles: Callable[[], Any], target: str) -> Any:
        self._compiling = target
        try:
            return compiles()
        finally:
            self._compiling = ""


def _kernel(name: str, size: tuple[int, ...], spills: int | str, *needs: Any) -> Kernel:
    """A kernel that the line which runs now would launch.

    Args:
        needs: threads, registers and shared memory, if they are known.
    """
    x, y, z = (*size, 1, 1, 1)[:3]
    threads, registers, shared = needs or (0, 0, None)
    launch = (0, 0, "unknown", (), _line_of(walk_stack(sys._getframe())))
    block = (threads, 1, 1)
    return Kernel(name, 0.0, (x, y, z), block, registers, shared, *launch, spills=spills)


def _capability(target: str) -> tuple[int, int]:
    """Major and minor, as torch says: of "sm_90" 9 and 0, of "gfx942" 9 and 4."""
    digits = target[3:-1] if target.startswith("gfx") else target[3:]  # without the stepping
    return int(digits[:-1]), int(digits[-1])


def _gpu_of(target: str) -> Any:
    """A target as Triton writes it."""
    from triton.backends.compiler import GPUTarget

    if target.startswith("gfx"):
        return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
    return GPUTarget("cuda", int(target[3:]), 32)


class _Double:
    """Stands for an object: a function of their names answers for its attributes."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return self._answer(name)


def _within(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function during which the mode is on: a backward pass begins with modes that are off."""

    @functools.wraps(function)
    def within(*args: Any) -> Any:
        with mode:
            return function(*args)

    return within


def _mode_of(torch: Any) -> Any:
    """A mode in which tensors are on "cuda" whose data is on the CPU."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._device import _device_constructors

    of_tensors: dict[int, object] = {
        id(torch.Tensor.device): torch.device("cuda", 0),
        id(torch.Tensor.is_cuda): True,
        id(torch.Tensor.is_cpu): False,
        id(torch.Tensor.get_device): 0,
    }

    def on_cpu(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return torch.device("cpu") if named else value

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name, kwargs = getattr(func, "__name__", ""), kwargs or {}
            asked = of_tensors.keys() & {id(func), id(getattr(func, "__self__", None))}
            if asked:
                return of_tensors[asked.pop()]
            if name in ("cuda", "pin_memory", "record_stream"):
                return args[0]
            if name not in ("device", "_parse_to"):  # those only name one
                args = tuple(map(on_cpu, args))
                kwargs = {key: on_cpu(value) for key, value in kwargs.items()}
                if func in _device_constructors():  # whatever device is the default
                    kwargs |= {"device": kwargs.get("device") or "cpu"}
            found = func(*args, **kwargs)
            if name.startswith(("empty", "new_empty")):
                found.zero_()
            return found

    return Mode()
