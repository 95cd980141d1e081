"""Read scenarios: what tests launch, in the words of a user."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).parent
SCENARIOS, KEPT = HERE / "scenarios", HERE / "kept"

_CALL = re.compile(
    r"(?P<what>\S+)(?: for (?P<us>[\d.]+)us)?(?: at (?P<at>.+?))?(?: x(?P<times>\d+))?\Z"
)


@dataclass(frozen=True)
class Launched:
    """One kernel of a call; on the CPU one operator.

    Attributes:
        name: the full name. operators: around the launch, the innermost first.
        at: ``file:line`` of the user's code, or nothing. us: microseconds on the device.
        registers: of a thread. shared_memory: bytes of a block. spills: bytes, or why they are not
            known; None where nobody asked.
    """

    name: str
    operators: tuple[str, ...]
    at: str
    us: float
    registers: int = 32
    shared_memory: int = 0
    spills: int | str | None = None


@dataclass(frozen=True)
class Beside:
    """A wait of the host (its ``name`` is the call), or a copy of so many ``bytes``.

    Attributes:
        allowed: the reason and the line of a block of ``allow`` around it, if there is one.
    """

    name: str
    operators: tuple[str, ...] = ()
    at: str = ""
    bytes: int = 4
    allowed: str = ""


@dataclass(frozen=True)
class Call:
    """What one call of a callable does, round by round.

    Attributes:
        gpu_us: what all kernels of a round take together, a value a round; without, what the
            kernels take. latency_us: of calls that are not profiled.
        work: by the metric that says it a second, how much of known operators, and what else ran.
        jit_compiled, autotunes, graph_breaks: what compilers did, in words.
        incomplete: whether the profiler lost events.
        pairs: of the other side: today's time over that one's, a value a pair of processes.
        ranks: the same call on further ranks.
        ended: why a call ended early whose kernels were compiled and not run.
    """

    device: str = "H200"
    kernels: tuple[Launched, ...] = ()
    waits: tuple[Beside, ...] = ()
    copies: tuple[Beside, ...] = ()
    gpu_us: tuple[float, ...] = ()
    latency_us: tuple[float, ...] = ()
    peak_memory: int = 0
    work: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    jit_compiled: tuple[str, ...] = ()
    autotunes: tuple[str, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    incomplete: bool = False
    disturbed: bool = False
    pairs: tuple[float, ...] = ()
    ranks: tuple[Call, ...] = ()
    ended: str = ""


@dataclass(frozen=True)
class Contest:
    """Callables that are compared: the kernels of a call, and microseconds round by round."""

    metric: str
    rounds_us: dict[str, tuple[float, ...]]
    kernels: dict[str, int]
    asserted: str


@dataclass(frozen=True)
class Described:
    """One test.

    Attributes:
        limits: the markers, as they are written. calls: what the test profiles, one by one.
        snapshot, revision, environment, earlier: what the same calls did when the snapshot was
            taken, do on the revision, do in the other environment, did in the earlier run; None
            where there is no such test.
        skip, xfail: reasons. crash: what is raised at the end, ``Kind: words``.
        bad_marker: a marker as it is written, which is no limit.
        reruns: how often it is run again; its calls are those of all tries.
        benchmark: whether pytest-benchmark times it.
        targets: what its kernels are compiled for, where there is no GPU.
    """

    id: str
    limits: dict[str, Any] = field(default_factory=dict)
    device: str = "H200"
    calls: tuple[Call, ...] = ()
    snapshot: tuple[Call, ...] | None = None
    revision: tuple[Call, ...] | None = None
    environment: tuple[Call, ...] | None = None
    earlier: tuple[Call, ...] | None = None
    compares: Contest | None = None
    skip: str = ""
    xfail: str = ""
    crash: str = ""
    bad_marker: str = ""
    reruns: int = 0
    benchmark: bool = False
    targets: tuple[str, ...] = ()

    @property
    def in_turn(self) -> tuple[Call, ...] | None:
        """What runs in turn with its calls."""
        return self.revision if self.revision is not None else self.environment


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        title: what it is about. gpu: whether there is one.
        options: further options of pytest. facts: what every format has to say.
    """

    name: str
    title: str
    tests: tuple[Described, ...]
    gpu: bool = True
    options: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    def has(self, side: str) -> bool:
        """Whether any test has that side."""
        return any(getattr(test, side) is not None for test in self.tests)


def names() -> list[str]:
    """All scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


@cache
def scenario(name: str) -> Scenario:
    """Read a scenario by its name."""
    told = _read(SCENARIOS / f"{name}.yaml")
    known = {**_kernels(), **told.pop("kernels", {})}
    tests: list[Described] = []
    for test_id, one in told.pop("tests").items():
        tests += _tests(test_id, dict(one or {}), known)
    return Scenario(name, tests=tuple(tests), **_tupled(told, "options"))


@cache
def _kernels() -> dict[str, Any]:
    return _read(HERE / "kernels.yaml")


def _read(path: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8")))


def _tests(test_id: str, one: dict[str, Any], known: dict[str, Any]) -> list[Described]:
    """A test, or as many as ``of`` names or ``numbered`` counts."""
    ids = [f"{test_id}[{each}]" for each in one.pop("of", ())]
    ids += [test_id.format(number) for number in range(one.pop("numbered", 0))]
    device = one.get("device", "H200")
    for side in ("calls", "snapshot", "revision", "environment", "earlier"):
        if side in one:
            one[side] = tuple(_call(call, known, device) for call in one[side])
    if "compares" in one:
        contest = one["compares"]
        one["compares"] = Contest(
            contest.get("metric", "cuda_time"),
            {
                name: _series(us, shift)
                for shift, (name, us) in enumerate(contest["rounds_us"].items())
            },
            contest.get("kernels", {}),
            contest.get("asserted", ""),
        )
    return [Described(each, **_tupled(one, "targets")) for each in ids or [test_id]]


def _call(told: dict[str, Any], known: dict[str, Any], device: str) -> Call:
    told = {"device": device, **told}
    kernels = [one for words in told.pop("kernels", ()) for one in _launched(words, known)]
    ranks = tuple(_call(one, known, device) for one in told.pop("ranks", ()))
    for name in ("gpu_us", "latency_us"):
        if name in told:
            told[name] = _series(told[name])
    for name in ("waits", "copies"):
        told[name] = tuple(Beside(**_tupled(one, "operators")) for one in told.get(name, ()))
    told["work"] = tuple(
        (metric, of["amount"], tuple(of.get("unknown", ())))
        for metric, of in told.get("work", {}).items()
    )
    told = _tupled(told, "pairs", "jit_compiled", "autotunes", "graph_breaks")
    return Call(kernels=tuple(kernels), ranks=ranks, **told)


def _launched(words: str, known: dict[str, Any]) -> list[Launched]:
    """``mul at model.py:31 x3`` or ``mul for 12us``: a kernel by its name in the table."""
    found = _CALL.match(words)
    if found is None or found["what"] not in known:
        raise ValueError(f"{words!r} is none of {', '.join(known)}")
    one = known[found["what"]]
    launched = Launched(
        one["name"],
        tuple(one.get("operators", ())),
        found["at"] or one.get("at", ""),
        float(found["us"] or one.get("us", 10.0)),
        **{what: one[what] for what in ("registers", "shared_memory", "spills") if what in one},
    )
    return [launched] * int(found["times"] or 1)


def _series(told: Any, shift: int = 0) -> tuple[float, ...]:
    """Rounds as they are, or twelve ``around`` a value, neighbours not alike."""
    if isinstance(told, dict):
        around, spread = float(told["around"]), float(told.get("spread", 0.01))
        mixed = (*_MIXED[shift:], *_MIXED[:shift])
        return tuple(around * (1 + spread * (i - 5.5) / 5.5) for i in mixed)
    return tuple(map(float, told))


_MIXED = (6, 1, 11, 4, 9, 2, 7, 0, 10, 3, 8, 5)


def _tupled(told: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: tuple(value) if key in keys else value for key, value in told.items()}
