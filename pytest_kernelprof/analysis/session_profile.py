"""What one session showed, and the ``Profile`` that it makes together with what was noted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from pytest_kernelprof.analysis import collectives, metric_values, round_events
from pytest_kernelprof.records.metrics import METRICS
from pytest_kernelprof.records.profile import Gaps, Kernel, Metric, Profile, Wait
from pytest_kernelprof.records.recording import (
    Conditions,
    DeviceKind,
    Environment,
    Integrity,
    KernelSpills,
    Recording,
)
from pytest_kernelprof.trace.columns import MEMCPY, Ints, Spans
from pytest_kernelprof.trace.correlation import Reading, compiled_regions, missed_lookups
from pytest_kernelprof.trace.integrity import check_integrity, names_no_kernels
from pytest_kernelprof.trace.vocabulary import tally

# What has a source line: the field of a profile, and what is compared of each.
_PLACED = {"kernels": "name", "copies": "name", "waits": "call"}
_CLOCKS_DISAGREE = "not available: the clocks of host and device disagree in this trace"
_NOT_RECORDED = "not recorded with the trace: only kernel_profile(fn) measures it"
_NOT_ASKED = "not available: this torch does not count compilations"
_NO_TRITON = "not available: Triton interprets kernels, cannot be watched, or was loaded unseen"
_NO_AUTOTUNER = "not available: an autotuner cannot be watched, or was loaded unseen"
_PAUSED = "not available: an autotuner benched in the block: run the code once before"
_WAS_RESET = "not available: the measured code calls torch._dynamo.reset(); call it before"
_GAVE_UP = "torch.compile gave up on this code at its recompile_limit, and runs it uncompiled"
_SILENT = (
    "code that torch.compile compiled ran without an operator that computes in the trace: its back "
    "end is neither Inductor nor one that runs PyTorch's operators, so it cannot be counted"
)
_UNKNOWN_LAUNCHES = (
    "not available: the calls that launched some of the kernels are not in the trace, so a "
    "missing one would not be noticed"
)
_LOST = "the notes do not say whether these operators compute: {}; record the trace again"
_CHILDREN_MEANT = 'if this is intended, mark the test kernelprof(other_processes="ignore")'
_CHILDREN_ENDED = "child processes ended unchecked after {:.1f}s: their work is not counted"
_NO_LIMIT = "not measured: only a max_spills limit that stands before the call asks for it"
_IN_REGISTERS = "not available in bytes: on AMD each kernel has its number of spilled registers"
_NOT_CLASSIFIED = (
    "the trace holds no device and was not recorded by pytest-kernelprof: its outermost operators "
    "are counted, views and allocations too, and a lost one is not noticed"
)


@dataclass(frozen=True, slots=True, eq=False)
class SessionFacts:
    """What a session's trace tells by itself.

    Attributes:
        profile: with the metrics of the profiled rounds alone.
        operators: of each of its kernels, copies and waits, by the name of the field, the innermost
            operator in the trace, or ``NO_ID``.
        activities: how many device activities there are, ours included.
        missed: how often a compiled function found nothing that fits; see ``missed_lookups``.
        regions: what the compiled frames that ran are called; see ``compiled_regions``.
    """

    profile: Profile
    operators: Mapping[str, Sequence[int]]
    activities: int
    missed: int
    regions: frozenset[str]

    @property
    def fullest(self) -> int:
        """The round that the kernels are of."""
        return _fullest(self.profile.metrics["kernels"])


def session_facts(reading: Reading) -> SessionFacts:
    """Work out everything that a session's trace tells, once."""
    return _device_facts(reading) if reading.trace.device_kind == "cuda" else _cpu_facts(reading)


def kernels_of_rounds(reading: Reading) -> tuple[tuple[Kernel, ...], ...]:
    """The kernels of each round in launch order; on the CPU its compute operators."""
    rounds = round_events.counted_rows(reading)
    return tuple(round_events.kernels_of(reading, rows) for rows in rounds)


def profile_of(facts: SessionFacts, recording: Recording, label: str = "") -> Profile:
    """The profile of a session, with what was measured beside it.

    Args:
        recording: all that was noted by now, further rounds and unprofiled calls included.
    """
    profile, conditions = facts.profile, recording.conditions or Conditions()
    on_cpu, clock = profile.environment.kind == "cpu", profile.integrity.clock
    more, allowed = recording.more_rounds, recording.more_allowed
    found = {
        name: metric_values.extended(metric, more.get(name, ()), allowed.get(name, ()))
        for name, metric in profile.metrics.items()
    }
    timings = None if clock else recording.host_timings
    why = "" if recording.schema else _NOT_RECORDED
    found |= metric_values.host_metrics(timings, {} if on_cpu else found, clock or why)
    found |= metric_values.memory_metrics(recording, why, on_cpu=on_cpu)
    found["recompiles"] = recompiles = _recompiles(recording, facts.missed)
    found |= _noted(recording, recompiles.why, on_cpu=on_cpu)
    found |= {name: metric_values.absent(name, why) for name, why in recording.no_times.items()}
    if not on_cpu:
        found |= metric_values.rate_metrics(recording.work, found["gpu_busy"])
        profile = _with_spills(profile, recording.spills)
        found["spills"] = _most_spilled(profile, recording)
    why = metric_values.NOT_ON_THE_CPU if on_cpu else "not applicable on a GPU: see syncs"
    metrics = {name: found.get(name) or metric_values.absent(name, why) for name in METRICS}
    second = {}
    if recording.second_look and timings:
        second = metric_values.host_metrics(recording.second_look, {} if on_cpu else metrics)
    return structs.replace(
        profile,
        label=label,
        one_shot=recording.one_shot,
        integrity=_with_noted(profile, recording),
        metrics=metrics,
        second_look=second,
        bound=metric_values.bound_of(
            metrics, timings, recording.roofline, contended=conditions.contended
        ),
        conditions=conditions,
        in_place=recording.in_place,
        cupti_ratio=recording.host_timings.cupti_ratio if recording.host_timings else None,
    )


def unmeasured(kind: DeviceKind, why: str) -> Profile:
    """What there is of a block that could not be measured: the reason, in place of every number."""
    return Profile(
        environment=Environment(kind, ""),
        metrics={name: metric_values.absent(name, why) for name in METRICS},
        one_shot=True,
        integrity=Integrity((why,)),
    )


def compiled_profile(
    target: str, launches: Sequence[Sequence[Kernel]], versions: Mapping[str, str], ended: str = ""
) -> Profile:
    """What kernels need that were compiled and did not run, in place of every number.

    Args:
        target: what for, as "sm_90". launches: of each launch its kernel, or of an autotuned one
            that of each configuration: each of ``variants`` then has another one in its place.
        ended: as of ``Profile``.
    """
    most = max(map(len, launches), default=1)
    sequences = [tuple(one[min(at, len(one) - 1)] for one in launches) for at in range(most)]
    return structs.replace(
        unmeasured("cuda", "compiled, not run"),
        environment=Environment("cuda", f"{target} (compiled, not run)", target, dict(versions)),
        integrity=Integrity(),
        kernels=sequences[0],
        variants=tuple(sequences[1:]),
        compiled=True,
        ended=ended,
    )


def with_lines(profile: Profile, facts: SessionFacts, of_operator: Mapping[int, str]) -> Profile:
    """The same profile with ``file:line`` for its kernels, copies and waits: for those of a kind
    that the session has as well, one by one. Else their lines would be guesses.

    Args:
        of_operator: the lines of the session's operators, by their rows.
    """
    placed: dict[str, Any] = {}
    for field, name in _PLACED.items():
        items = getattr(profile, field)
        sessions = [getattr(one, name) for one in getattr(facts.profile, field)]
        if [getattr(one, name) for one in items] == sessions:
            lines = (of_operator.get(operator) for operator in facts.operators.get(field, ()))
            placed[field] = tuple(
                structs.replace(one, source=line) if line else one
                for one, line in zip(items, lines, strict=True)
            )
    return structs.replace(profile, **placed)


def with_same_lines(profile: Profile, other: Profile) -> Profile:
    """The same profile of one call, without the lines that it does not have after another one."""
    placed: dict[str, Any] = {}
    for field in _PLACED:
        both = zip(getattr(profile, field), getattr(other, field), strict=True)
        placed[field] = tuple(
            one if one.source == again.source else structs.replace(one, source="")
            for one, again in both
        )
    ranks = tuple(map(with_same_lines, profile.other_ranks, other.other_ranks))
    return structs.replace(profile, **placed, other_ranks=ranks)


def _with_spills(profile: Profile, noted: Sequence[KernelSpills] | None) -> Profile:
    """The profile with what was found out about each of its kernels."""
    if noted is None:
        return profile
    found = {(one.name, one.registers, one.threads, one.shared_memory): one.spills for one in noted}

    def told(one: Kernel) -> Kernel:
        key = one.name, one.registers, math.prod(one.block), one.shared_memory
        return structs.replace(one, spills=found.get(key, _NOT_RECORDED))

    kernels, *variants = (tuple(map(told, one)) for one in (profile.kernels, *profile.variants))
    return structs.replace(profile, kernels=kernels, variants=tuple(variants))


def _most_spilled(profile: Profile, recording: Recording) -> Metric:
    """The most bytes that any kernel of the call spills."""
    spills = [one.spills for some in (profile.kernels, *profile.variants) for one in some]
    whys = [one for one in spills if isinstance(one, str)]
    if profile.environment.is_amd:
        whys = [_IN_REGISTERS]
    if recording.spills is None:
        return metric_values.absent("spills", _NO_LIMIT if recording.schema else _NOT_RECORDED)
    if whys:
        return metric_values.absent("spills", whys[0])
    most = max((one for one in spills if isinstance(one, int)), default=0)
    return metric_values.metric_of("spills", [most])


def _with_noted(profile: Profile, recording: Recording) -> Integrity:
    """Whether the profile is complete beside what child processes did. On the CPU, where a process
    that computes looks like one that does not, a count other than 0 says that this one did."""
    children, retakes = recording.children, recording.retakes
    integrity = structs.replace(profile.integrity, settled=recording.settled, retakes=retakes)
    integrity = structs.replace(integrity, children_checked=children.checked)
    if profile.environment.kind == "cpu" and profile.metrics["kernels"].value:
        return integrity
    if children.at_work and not children.ignored:
        problems = (*integrity.problems, *children.at_work, _CHILDREN_MEANT)
        return structs.replace(integrity, problems=problems)
    told = [f"other processes ignored: {words}" for words in children.at_work]
    if children.ended_s:
        told.append(_CHILDREN_ENDED.format(children.ended_s))
    return structs.replace(integrity, elsewhere=tuple(told))


def _recompiles(recording: Recording, missed: int) -> Metric:
    """Compilations, and calls that would be one had the compiler not given up on the code."""
    if recording.recompiles is None:
        return metric_values.absent("recompiles", _NOT_ASKED if recording.schema else _NOT_RECORDED)
    compiled, needed = recording.recompiles, missed if recording.may_refuse else 0
    why = f"calls that need one: {_GAVE_UP}" if recording.refused or needed > compiled else ""
    return metric_values.metric_of("recompiles", [max(compiled, needed, recording.refused)], why)


def _noted(recording: Recording, why_not: str, *, on_cpu: bool) -> dict[str, Metric]:
    """What was noted in words beside the count of compilations, with the first of them.

    Args:
        why_not: why compilations are not all that there was to compile, and graphs not either.
    """
    no_breaks = _WAS_RESET if recording.reused else recording.graph_breaks_why
    no_breaks = f"not available: {_GAVE_UP}" if why_not else no_breaks
    no_breaks = _PAUSED if recording.autotuned else no_breaks  # what ran is not all in the trace
    found = {
        "jit_compiles": (recording.jit_compiled, _NO_TRITON),
        "autotunes": (recording.autotunes, _NO_AUTOTUNER),
        "graph_breaks": (None if no_breaks else recording.graph_breaks, no_breaks),
    }
    return {
        name: metric_values.absent(name, (recording.schema and why) or _NOT_RECORDED)
        if words is None
        else metric_values.metric_of(name, [len(words)], ", ".join([*dict.fromkeys(words)][:3]))
        for name, (words, why) in found.items()
        if "cpu" in METRICS[name].devices or not on_cpu
    }


def _device_facts(reading: Reading) -> SessionFacts:
    waiting = round_events.waiting_calls(reading)
    of_rounds = round_events.host_waits(reading, waiting)
    line, integrity = metric_values.timeline_of(reading), check_integrity(reading)
    metrics = metric_values.device_metrics(reading, line, of_rounds)
    metrics |= collectives.communication_metrics(reading)
    metrics |= _not_available(reading, integrity)
    gaps = metric_values.gaps_of(reading, line)
    if integrity.clock_skew:
        gaps = Gaps((), _CLOCKS_DISAGREE)
        metrics |= {
            name: metric_values.absent(name, _CLOCKS_DISAGREE) for name in ("gpu_span", "gpu_idle")
        }
    copies = reading.activities(MEMCPY)[_fullest(metrics["memcpys"])]
    waits = np.array(of_rounds[_fullest(metrics["syncs"])], np.int64)
    return _facts(
        reading,
        round_events.counted_rows(reading),
        Profile(
            environment=_environment(reading),
            integrity=integrity,
            metrics=metrics,
            copies=round_events.copies_of(reading, copies),
            waits=round_events.waits_of(reading, waits),
            gaps=gaps,
            host_shares=metric_values.host_shares(reading, waiting),
            collectives=collectives.collectives_of(reading, _fullest(metrics["kernels"])),
        ),
        {
            "copies": round_events.operators_of_activities(reading, copies),
            "waits": round_events.operators_of_calls(reading, waits),
        },
    )


def _cpu_facts(reading: Reading) -> SessionFacts:
    classified = reading.trace.recording.compute_operators is not None
    counted = "compute operators" if classified else "outermost operators, not classified"
    reads = round_events.read_rows(reading)
    would_wait = metric_values.metric_of("would_wait", list(map(len, reads)))
    read = reads[_fullest(would_wait)]
    if not classified:  # a read lies below an operator that is not known to compute
        would_wait = metric_values.absent("would_wait", counted)
    rows = round_events.counted_rows(reading)
    count = metric_values.metric_of("kernels", list(map(len, rows)), counted)
    integrity = check_integrity(reading)
    problems = (*integrity.problems, *_cpu_problems(reading))
    return _facts(
        reading,
        rows,
        Profile(
            environment=_environment(reading),
            integrity=structs.replace(integrity, problems=problems),
            metrics={"kernels": count, "would_wait": would_wait},
            waits=tuple(Wait(one[0], one) for one in round_events.chains(reading, read.tolist())),
            gaps=Gaps((), metric_values.NOT_ON_THE_CPU),
        ),
        {"waits": read.tolist()},
    )


def _facts(
    reading: Reading,
    rows: Sequence[Ints],
    profile: Profile,
    operators: Mapping[str, Sequence[int]],
) -> SessionFacts:
    """What a session on a device and one on the CPU both have beside the ``profile`` so far.

    Args:
        rows: the ``counted_rows``. operators: those of its copies and waits.
    """
    trace, fullest = reading.trace, _fullest(profile.metrics["kernels"])
    table: Spans = trace.operators if trace.device_kind == "cpu" else trace.activities
    of_kernels = [round_events.operators_of_kernels(reading, of_round) for of_round in rows]
    less = [round_events.allowed(reading, "kernels", one).astype(bool) for one in rows]
    names = [2 * table.name.codes[one] + of for one, of in zip(rows, less, strict=True)]
    kernels = metric_values.with_allowed(profile.metrics["kernels"], [int(of.sum()) for of in less])
    others = round_events.different_rounds(reading, fullest, names, of_kernels)
    profile = structs.replace(
        profile,
        rounds=reading.rounds,
        metrics=profile.metrics | {"kernels": kernels},
        kernels=round_events.kernels_of(reading, rows[fullest]),
        variants=tuple(round_events.kernels_of(reading, rows[number]) for number in others),
    )
    operators = {"kernels": of_kernels[fullest], **operators}
    missed, regions = missed_lookups(reading), compiled_regions(reading)
    return SessionFacts(profile, operators, len(trace.activities), missed, regions)


def _fullest(metric: Metric) -> int:
    """The first round with the largest value."""
    rounds = metric.rounds
    return rounds.index(max(rounds)) if rounds else 0


def _not_available(reading: Reading, integrity: Integrity) -> dict[str, Metric]:
    """The counts that this trace cannot tell."""
    if unnamed := names_no_kernels(reading.trace):
        counts = ("kernels", "launches", "cuda_time", *collectives.COMMUNICATION)
        return {name: metric_values.absent(name, unnamed) for name in counts}
    if integrity.unknown_launches:
        return {"launches": metric_values.absent("launches", _UNKNOWN_LAUNCHES)}
    return {}


def _environment(reading: Reading) -> Environment:
    kind, noted = reading.trace.device_kind, reading.trace.recording
    device = noted.device or _device_name(reading)
    return Environment(kind, device, noted.capability, noted.versions, noted.power_limit_w)


def _device_name(reading: Reading) -> str:
    """The name of the device that did most, as far as the file lists it."""
    trace = reading.trace
    if not trace.on_device:
        return "CPU"
    if not trace.devices:
        return "unknown device"
    numbers, counts = np.unique(trace.activities.device, return_counts=True)
    most = int(numbers[counts.argmax()]) if len(numbers) else 0
    # ROCm does not count its devices as they are listed.
    of_it = (one for one in trace.devices if one.get("id") == most)
    return str(next(of_it, trace.devices[0]).get("name") or "unknown device")


def _cpu_problems(reading: Reading) -> tuple[str, ...]:
    recording, ops = reading.trace.recording, reading.trace.operators
    if recording.compute_operators is None:
        return (_NOT_CLASSIFIED,)
    problems = [*recording.unseen]
    if round_events.silent_regions(reading):
        problems.append(_SILENT)
    if recording.idle_operators is not None:
        # Our notes name each operator of the trace: one that they do not name, they have lost.
        noted = frozenset((*recording.compute_operators, *recording.idle_operators))
        lost = ~ops.annotation & ~ops.name.that(noted.__contains__)
        if lost.any():
            problems.append(_LOST.format(tally(ops.name[lost])))
    return tuple(problems)
