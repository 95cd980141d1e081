"""What a trace means: ``Profile``, its kernels and its metrics."""

from __future__ import annotations

import functools
import gzip
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from pytest_kernelprof.analysis import metrics as _metrics
from pytest_kernelprof.analysis.bound import Bound, bound_of
from pytest_kernelprof.analysis.metrics import HostShares, Metric
from pytest_kernelprof.analysis.roofline.model import Roofline
from pytest_kernelprof.report.tables import Column, render
from pytest_kernelprof.schema.annotations import PREFIX
from pytest_kernelprof.schema.conditions import Conditions
from pytest_kernelprof.schema.recording import HostTimings, MemoryUse
from pytest_kernelprof.trace import Integrity, Trace, check_integrity, read_trace
from pytest_kernelprof.trace.completeness import check_rounds, cold_signs
from pytest_kernelprof.trace.correlation import link
from pytest_kernelprof.trace.gaps import Gaps, gaps_of
from pytest_kernelprof.trace.model import KERNEL, MEMCPY, NO_ID
from pytest_kernelprof.trace.rounds import lay_out, round_of_activity, round_of_time
from pytest_kernelprof.units import format_bytes, format_time

if TYPE_CHECKING:
    from pytest_kernelprof.trace.correlation import Links
    from pytest_kernelprof.trace.model import Ints
    from pytest_kernelprof.trace.rounds import Layout

_GAPS = ("gpu_span", "gpu_idle")
_CPU_ONLY = "not applicable on the CPU"


class Kernel(msgspec.Struct, frozen=True, gc=False):  # a dataclass takes six times as long to make
    """One kernel of the device; on the CPU one operator that computes.

    Attributes:
        name: full name, demangled.
        duration_us: microseconds on the device (on the CPU: of the operator).
        grid, block: launch dimensions; zeros on the CPU.
        registers: registers a thread. shared_memory: bytes a block.
        device, stream: indices as the profiler gives them.
        launch: the host call that launched it; "unknown" where the profiler records none.
        operators: operators around the launch, from the inside out.
        source: ``file:line`` of the user's code, empty where unknown.
    """

    name: str
    duration_us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_memory: int
    device: int
    stream: int
    launch: str
    operators: tuple[str, ...]
    source: str = ""

    @property
    def short_name(self) -> str:
        """The name without return type, namespaces, template and call arguments."""
        return shorten(self.name)


@dataclass(frozen=True, slots=True)
class Copy:
    """One memory copy: "h2d", "d2h", "d2d" or "p2p", between kinds of memory as CUPTI names them.

    Attributes:
        name: for example "Memcpy DtoH (Device -> Pageable)".
        bytes: size. duration_us: microseconds on the device.
        operators, source: as for kernels.
    """

    name: str
    direction: str
    bytes: int
    duration_us: float
    operators: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of the host for the device: the waiting call, its operators, its source line."""

    call: str
    operators: tuple[str, ...]
    source: str = ""


What = Literal["kernel", "copy", "wait"]
Lines = Mapping[tuple[What, int], str]
"""``file:line`` of the i-th kernel, copy or wait of a profile."""


def shorten(name: str) -> str:
    """``void at::native::reduce_kernel<512, 1>(...)`` is ``reduce_kernel``."""
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    if name.startswith("aten::") or "::" not in bare:
        return re.split(r"[<(]", bare, maxsplit=1)[0] or name
    return re.split(r"[<(]", bare, maxsplit=1)[0].rsplit("::", 1)[-1] or name


class Profile:
    """What one measurement recorded. Build one with ``profile(fn)``, the fixture, or
    ``Profile.from_trace(path)``.

    Every metric is in ``metrics`` under its name and, but for ``kernels``, an attribute:
    ``profile.launches``, ``profile.cuda_time``, ... (None where it could not be had;
    ``metrics[name].why`` says why). ``kernels`` is the tuple of kernels in launch order and
    ``kernel_count`` their number.

    Attributes:
        trace: the columns that everything is computed from.
        label: which of a test's profiles this is (a region's name), empty for the only one.
        keeps: whatever has to live as long as the profile, such as its trace file.
    """

    def __init__(
        self,
        trace: Trace,
        label: str = "",
        *,
        lines: Lines | None = None,
        keeps: object = None,
    ) -> None:
        self.trace = trace
        self.label = label
        self.keeps = keeps
        self._lines = dict(lines or {})

    @classmethod
    def from_trace(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a Chrome trace, plain or gzip, of our own or from elsewhere.

        Raises:
            TraceError: the file cannot be read as one.
        """
        return cls(read_trace(path))

    def with_lines(self, lines: Lines) -> Profile:
        """The same profile with ``file:line`` for its kernels, copies and waits."""
        return Profile(self.trace, self.label, lines=lines, keeps=self.keeps)

    def with_recording(self, noted: Mapping[str, Any]) -> Profile:
        """The same profile with more noted beside the trace."""
        trace = replace(self.trace, recording={**self.recording, **noted})
        return Profile(trace, self.label, lines=self._lines, keeps=self.keeps)

    @property
    def recording(self) -> Mapping[str, Any]:
        """What our capture noted beside the trace; empty for a trace from elsewhere."""
        return self.trace.recording

    @functools.cached_property
    def device_kind(self) -> str:
        """Either "cuda" or "cpu"."""
        noted = self.recording.get("device_kind")
        return str(noted) if noted else ("cuda" if self.trace.on_device else "cpu")

    @property
    def rounds(self) -> int:
        """How many calls were profiled."""
        return len(self._layout.rounds)

    @functools.cached_property
    def integrity(self) -> Integrity:
        """Whether the profile is complete, and what is missing if not."""
        if self.device_kind == "cuda":
            return check_integrity(self.trace, self.links, self._layout)
        problems = (*check_rounds(self.trace, self._layout), *self._cpu_problems())
        return Integrity(problems, cold=cold_signs(self.trace, self._layout))

    def _cpu_problems(self) -> tuple[str, ...]:
        if not self._compute_names:
            return (
                (
                    "the trace holds no device and no table of compute operators (it was not "
                    "recorded by pytest-kernelprof), so kernels cannot be counted",
                )
                if "compute_operators" not in self.recording
                else ()
            )
        compiled = any("CompiledFxGraph" in name for name in set(self.trace.operators.name))
        if compiled and self.recording.get("compiled_kernels_hidden"):
            return (
                "a compiled graph may hide its kernels: Inductor's switch "
                "config.cpp.enable_kernel_profile was off when this process first measured; leave "
                "it on (TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1) before anything is compiled",
            )
        return ()

    @functools.cached_property
    def kernel_count(self) -> int:
        """Number of kernels of one call; the largest where rounds differ."""
        value = self.metrics["kernels"].value
        return 0 if value is None else int(value)

    @functools.cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of one call in launch order: of the round that had most of them."""
        found = self.kernels_of_round(self._fullest_round("kernels"))
        if not self._lines:
            return found
        return tuple(
            msgspec.structs.replace(one, source=self._line("kernel", i))
            for i, one in enumerate(found)
        )

    def kernels_of_round(self, chosen: int) -> tuple[Kernel, ...]:
        """The kernels of one round (from 0) in launch order, without source lines."""
        if self.device_kind == "cuda":
            return tuple(self._device_kernels(chosen))
        return tuple(self._cpu_kernels(chosen))

    @functools.cached_property
    def variants(self) -> tuple[tuple[Kernel, ...], ...]:
        """The different sequences of kernels among the rounds, by name and operators; ``kernels``
        comes first. Nearly always it is the only one."""
        found = {_signature(self.kernels): self.kernels}
        for chosen in range(self.rounds):
            kernels = self.kernels_of_round(chosen)
            found.setdefault(_signature(kernels), kernels)
        return tuple(found.values())

    @functools.cached_property
    def copies(self) -> tuple[Copy, ...]:
        """The memory copies of one call in order; none on the CPU."""
        acts, direction = self.trace.activities, _metrics.directions(self.trace)
        return tuple(
            Copy(
                acts.name[row],
                direction[row],
                int(acts.bytes[row]),
                (int(acts.end[row]) - int(acts.start[row])) / 1e3,
                self._chain(operator),
                self._line("copy", i),
            )
            for i, (row, operator) in enumerate(
                zip(
                    self._rows(MEMCPY, self._fullest_round("memcpys")).tolist(),
                    self.operators_of("copy"),
                    strict=True,
                )
            )
        )

    @functools.cached_property
    def waits(self) -> tuple[Wait, ...]:
        """The waits of the host for the device in one call, in order; none on the CPU."""
        return tuple(
            Wait(
                self.trace.calls.name[call] if call != NO_ID else "unknown",
                self._chain(operator),
                self._line("wait", i),
            )
            for i, (call, operator) in enumerate(
                zip(self._waiting_calls(), self.operators_of("wait"), strict=True)
            )
        )

    @functools.cached_property
    def metrics(self) -> dict[str, Metric]:
        """All metrics by name."""
        if self.device_kind == "cuda":
            found = _metrics.device_metrics(self.trace, self.links, self._layout, self._ours)
            more = self.recording.get("more_rounds", {})
            found = [_metrics.extended(metric, more.get(metric.name, ())) for metric in found]
            known = {metric.name: metric for metric in found}
            busy, launches = known["gpu_busy"], known["launches"]
            why = (
                "not measured: it needs calls that are not profiled; use kernel_profile(fn) with "
                "a memory limit (one-shot profiles of a block or a whole test have none)"
            )
        else:
            found, busy, launches = self._cpu_metrics(), None, None
            why = _CPU_ONLY
        found += _metrics.host_metrics(self.host_timings, busy, launches)
        memory = self.recording.get("memory")
        found += _metrics.memory_metrics(
            msgspec.convert(memory, MemoryUse) if memory else None,
            str(self.recording.get("memory_why") or why),
        )
        recompiles = self.recording.get("recompiles")
        found.append(
            _metrics.absent("recompiles", "exact", "count", "not recorded with the trace")
            if recompiles is None
            else _metrics.count("recompiles", [recompiles])
        )
        if self.device_kind == "cuda" and self.integrity.clock_skew:
            why = "not to be had: the clocks of host and device disagree in this trace"
            found += [_metrics.absent(name, "shown", "us", why) for name in _GAPS]
        return {metric.name: metric for metric in found}

    @property
    def host_timings(self) -> HostTimings | None:
        """Timings of unprofiled calls, if any were taken."""
        return self._host_timings("host_timings")

    def _host_timings(self, key: str) -> HostTimings | None:
        timings = self.recording.get(key)
        return msgspec.convert(timings, HostTimings) if timings else None

    @functools.cached_property
    def second_look(self) -> dict[str, Metric]:
        """``dispatch_time``, ``latency`` and ``launch_overhead`` by a second, separate measurement;
        empty where none was taken."""
        timings = self._host_timings("second_look")
        if timings is None:
            return {}
        busy, launches = self.metrics.get("gpu_busy"), self.metrics.get("launches")
        if self.device_kind != "cuda":
            busy = launches = None
        return {m.name: m for m in _metrics.host_metrics(timings, busy, launches)}

    @functools.cached_property
    def bound(self) -> Bound:
        """What the call is limited by, with the reason in words."""
        roofline = self.recording.get("roofline")
        return bound_of(self.metrics, self.host_timings, Roofline(**roofline) if roofline else None)

    @functools.cached_property
    def gaps(self) -> Gaps:
        """Why the device was idle between the activities of each round; none on the CPU."""
        if self.device_kind != "cuda":
            return Gaps((), _CPU_ONLY)
        return gaps_of(self.trace, self.links, self._layout, self._ours)

    @functools.cached_property
    def host_shares(self) -> HostShares | None:
        """Where the host's time went in the profiled rounds: dispatch, launch calls, waiting. None
        on the CPU and for traces without our rounds."""
        if self.device_kind != "cuda":
            return None
        return _metrics.host_shares(self.trace, self.links, self._layout, self._ours)

    @property
    def conditions(self) -> Conditions:
        """What the GPU was like while it was timed; nothing known where it was not."""
        noted = self.recording.get("conditions")
        return Conditions.from_plain(noted) if noted else Conditions()

    def __getattr__(self, name: str) -> float | None:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.metrics[name].value
        except KeyError:
            raise AttributeError(
                f"a Profile has no attribute or metric {name!r}; metrics: {', '.join(self.metrics)}"
            ) from None

    def __repr__(self) -> str:
        state = "complete" if self.integrity.complete else "INCOMPLETE"
        return f"<Profile {self.label or ''}: {self.kernel_count} kernels, {state}, {self.place}>"

    @property
    def place(self) -> str:
        """Device and versions, for example ``NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0``."""
        device = self.recording.get("device")
        if not device:
            device = str(self.trace.devices[0].get("name")) if self.trace.devices else "CPU"
        versions = self.recording.get("versions", {})
        named = [f"{key} {versions[key]}" for key in ("torch", "triton") if key in versions]
        return ", ".join([str(device), *named])

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace (gzip if the name ends in ``.gz``), with what we know of it
        beside the events, so that ``from_trace`` gives this profile back."""
        with open(self.trace.source, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        if self.recording:
            data = _without_notes(data)
            noted = b'{"kernelprof":' + msgspec.json.encode(dict(self.recording)) + b","
            data = noted + data[data.index(b"{") + 1 :]
        if os.fspath(path).endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        with open(path, "wb") as file:
            file.write(data)

    def table(self, width: int = 100) -> str:
        """The kernels of one call as a text table: name, operators, source line, time."""
        return "\n".join(kernel_table(self, width))

    # What follows computes on the columns.

    @functools.cached_property
    def links(self) -> Links:
        """How activities, calls and operators of the trace belong together."""
        return link(self.trace)

    @functools.cached_property
    def _layout(self) -> Layout:
        return lay_out(self.trace, self.links)

    @functools.cached_property
    def _ours(self) -> Ints:
        return round_of_activity(self.trace, self.links, self._layout)

    @functools.cached_property
    def _compute_names(self) -> frozenset[str]:
        return frozenset(self.recording.get("compute_operators", ()))

    def operators_of(self, what: What) -> list[int]:
        """For each kernel, copy or wait the index of its innermost operator in the trace, or -1."""
        if self.device_kind != "cuda":
            return self._cpu_rows(self._fullest_round("kernels")) if what == "kernel" else []
        if what == "wait":
            calls = self._waiting_calls()
        else:
            kind, metric = (KERNEL, "kernels") if what == "kernel" else (MEMCPY, "memcpys")
            rows = self._rows(kind, self._fullest_round(metric))
            calls = self.links.call_of_activity[rows].tolist()
        return self._operators_of_calls(calls)

    def _operators_of_calls(self, calls: Sequence[int] | Ints) -> list[int]:
        operators = np.append(self.links.operator_of_call, NO_ID)  # NO_ID points to the last
        found: list[int] = operators[calls].tolist()
        return found

    def _line(self, what: What, i: int) -> str:
        return self._lines.get((what, i), "")

    def _fullest_round(self, metric: str) -> int:
        per_round = self.metrics[metric].rounds[: self.rounds]  # further sessions left no trace
        return per_round.index(max(per_round)) if per_round else 0

    def _rows(self, kind: int, chosen: int) -> Ints:
        """Activities of one kind and round in launch order."""
        acts = self.trace.activities
        rows = np.flatnonzero((acts.kind == kind) & (self._ours == chosen))
        calls = self.links.call_of_activity[rows]
        launched = acts.start[rows].copy()
        launched[calls != NO_ID] = self.trace.calls.start[calls[calls != NO_ID]]
        order: Ints = rows[np.lexsort((acts.start[rows], launched))]
        return order

    def _waiting_calls(self) -> list[int]:
        if self.device_kind != "cuda":
            return []
        waits = _metrics.host_waits(self.trace, self.links, self._layout, self._ours)
        return waits[self._fullest_round("syncs")]

    def _cpu_rows(self, chosen: int) -> list[int]:
        return [int(i) for i in self._compute_operators() if self._op_round[i] == chosen]

    def _device_kernels(self, chosen: int) -> list[Kernel]:
        acts, rows = self.trace.activities, self._rows(KERNEL, chosen)
        launches = np.append(self.trace.calls.name, "unknown")  # NO_ID points to the last
        return list(
            map(
                Kernel,
                acts.name[rows].tolist(),
                ((acts.end[rows] - acts.start[rows]) / 1e3).tolist(),
                zip(*acts.grid[rows].T.tolist(), strict=True),
                zip(*acts.block[rows].T.tolist(), strict=True),
                acts.registers[rows].tolist(),
                acts.shared_memory[rows].tolist(),
                acts.device[rows].tolist(),
                acts.stream[rows].tolist(),
                launches[self.links.call_of_activity[rows]].tolist(),
                self._chains(self._operators_of_calls(self.links.call_of_activity[rows])),
            )
        )

    def _chain(self, operator: int) -> tuple[str, ...]:
        return self._chains([operator])[0]

    def _chains(self, operators: Sequence[int]) -> list[tuple[str, ...]]:
        """For each operator its name and those around it; ours are left out."""
        names, parents = self._names_and_parents
        known: dict[tuple[str, ...], tuple[str, ...]] = {}  # one tuple for all equal chains
        chains = []
        for operator in operators:
            around = []
            while operator != NO_ID:
                around.append(names[operator])
                operator = parents[operator]
            whole = tuple(around)
            chain = known.get(whole)
            if chain is None:
                chain = known[whole] = tuple(n for n in whole if not n.startswith(PREFIX))
            chains.append(chain)
        return chains

    @functools.cached_property
    def _names_and_parents(self) -> tuple[list[str], list[int]]:
        """Of each operator, as lists: NumPy takes five times as long to hand out one at a time."""
        return self.trace.operators.name.tolist(), self.links.parent.tolist()

    # On the CPU the outermost computing operator of each chain counts; what lies below it is its
    # implementation.

    def _compute_operators(self) -> Ints:
        ops, parent = self.trace.operators, self.links.parent
        computes = np.array([name in self._compute_names for name in ops.name.tolist()], np.bool_)
        # What torch.compile runs while it traces is no work of the call.
        covered = ops.name == "dynamo"
        for i in np.lexsort((-ops.end, ops.start, ops.thread)):
            above = parent[i]
            covered[i] |= above != NO_ID and (covered[above] or computes[above])
        found: Ints = np.flatnonzero(computes & ~covered & (self._op_round != NO_ID))
        return found

    @functools.cached_property
    def _op_round(self) -> Ints:
        return round_of_time(self._layout.rounds, self.trace.operators.start, late=False)

    def _cpu_metrics(self) -> list[Metric]:
        found = self._compute_operators()
        per_round = np.bincount(self._op_round[found], minlength=self.rounds)
        not_here = [
            *("launches", "memcpys", "memcpy_bytes", "memsets", "syncs"),
            *(f"{base}_{d}" for base in ("memcpys", "memcpy_bytes") for d in _metrics.DIRECTIONS),
        ]
        times = ("cuda_time", "gpu_busy", "gpu_span", "gpu_idle")
        return [
            _metrics.count("kernels", [int(n) for n in per_round], why="compute operators"),
            *(_metrics.absent(name, "exact", "count", _CPU_ONLY) for name in not_here),
            *(_metrics.absent(name, "timed", "us", _CPU_ONLY) for name in times),
        ]

    def _cpu_kernels(self, chosen: int) -> list[Kernel]:
        ops, none = self.trace.operators, (0, 0, 0)
        return [
            Kernel(
                ops.name[i],
                (int(ops.end[i]) - int(ops.start[i])) / 1e3,
                *(none, none, 0, 0, 0, 0),
                "operator",
                self._chain(int(i)),
            )
            for i in self._cpu_rows(chosen)
        ]


class _Notes(msgspec.Struct):
    kernelprof: msgspec.Raw = msgspec.Raw()


def _without_notes(data: bytes) -> bytes:
    """The text of a trace without what ``save_trace`` put in front of its events."""
    front = b'{"kernelprof":'
    if not data.startswith(front):
        return data
    noted = bytes(msgspec.json.decode(data, type=_Notes).kernelprof)
    return b"{" + data[len(front) + len(noted) + 1 :]


def _signature(kernels: tuple[Kernel, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((kernel.name, kernel.operators) for kernel in kernels)


def copy_table(profile: Profile, width: int) -> list[str]:
    """The lines of a table of a profile's memory copies."""
    rows = [
        [
            str(i),
            copy.name,
            format_bytes(copy.bytes),
            _chain_words(copy.operators),
            _line_words(copy.source),
            format_time(copy.duration_us),
        ]
        for i, copy in enumerate(profile.copies, 1)
    ]
    columns = (
        Column("#", number=True),
        Column("copy", shrinks=True),
        Column("size", number=True),
        Column("called by", shrinks=True),
        Column("line", shrinks=True, keep_end=True),
        Column("gpu time", number=True),
    )
    return render(columns, rows, width)


def wait_table(profile: Profile, width: int) -> list[str]:
    """The lines of a table of the host's waits for the device."""
    rows = [
        [str(i), wait.call, _chain_words(wait.operators), _line_words(wait.source)]
        for i, wait in enumerate(profile.waits, 1)
    ]
    columns = (
        Column("#", number=True),
        Column("waits in", shrinks=True),
        Column("called by", shrinks=True),
        Column("line", shrinks=True, keep_end=True),
    )
    return render(columns, rows, width)


def _chain_words(operators: tuple[str, ...]) -> str:
    """The innermost operator and the outermost, which is mostly the one that the user called."""
    called = [name for name in operators if not name.startswith("autograd::engine::")]
    return " < ".join(dict.fromkeys([called[0], called[-1]])) if called else "-"


def _line_words(source: str) -> str:
    return os.path.basename(source) or "line unknown"


def kernel_table(profile: Profile, width: int, *, most: int = 40) -> list[str]:
    """The lines of a profile's kernel table, the middle cut out where there are many."""
    on_cpu = profile.device_kind == "cpu"
    rows = [
        [
            str(i),
            kernel.short_name,
            _chain_words(kernel.operators[on_cpu:]),
            _line_words(kernel.source),
            format_time(kernel.duration_us),
        ]
        for i, kernel in enumerate(profile.kernels, 1)
    ]
    if len(rows) > most:
        left_out = len(rows) - most
        rows[most - 5 : -5] = [["", f"... {left_out} more ...", "", "", ""]]
    columns = (
        Column("#", number=True),
        Column("operator" if on_cpu else "kernel", shrinks=True),
        Column("called by" if on_cpu else "launched by", shrinks=True),
        Column("line", shrinks=True, keep_end=True),
        Column("cpu time" if on_cpu else "cuda time", number=True),
    )
    return render(columns, rows, width)
