"""Faults put into recorded traces: what a profiler, a disk or a tool may do to one, kind by kind.

``told`` is the promise: whatever is done to a trace, each number is as it was, or is not given.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from corpus import Document, Event

from pytest_kernelprof.api import Profile
from pytest_kernelprof.errors import TraceError

Outcome = Literal["told", "harmless", "shown", "silent"]
Facts = dict[str, object]
Faulty = Iterator[Callable[[], list[Event]]]
"""The cases of a fault, each made when it is called: of thousands a test tries a few."""

ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
NUMBERS = (
    *("kernels", "launches", "memsets", "syncs", "cuda_time", "gpu_busy"),
    *("memcpys", "memcpys_h2d", "memcpys_d2h", "memcpys_d2d", "memcpys_pageable"),
    *("memcpy_bytes", "memcpy_bytes_h2d", "memcpy_bytes_d2h", "memcpy_bytes_d2d"),
    *("registers", "shared_memory"),
)
FAR_US = 10_000_000.0
ROWS = 30  # of these traces an activity and its call are never that far apart in the file


def as_noted_today(document: Document) -> Document:
    """The document with rounds as they are annotated now, and their number beside them: those
    recorded first have one annotation around each round."""
    events = [one for event in document["traceEvents"] for one in _marked(event)]
    noted, rounds = document.get("kernelprof"), len(_rounds(events)) // 2
    if noted is None or not rounds:
        return document
    return {**document, "traceEvents": events, "kernelprof": {**noted, "rounds": rounds}}


def _marked(event: Event) -> list[Event]:
    """The two marks in place of an annotation around a round; any other event as it is."""
    if event.get("cat") != "user_annotation" or "::round#" not in event["name"]:
        return [event]
    at_end = event["ts"] + event["dur"]
    return [
        {**event, "name": event["name"].replace("::round#", f"::{mark}#"), "ts": at, "dur": 0}
        for mark, at in (("begin", event["ts"]), ("end", at_end))
    ]


def facts_of(profile: Profile) -> Facts:
    """What a profile claims: its numbers, and each kernel with what launched it."""
    facts: Facts = {name: profile.metrics[name].value for name in NUMBERS}
    kernels = profile.kernels
    facts["kernels by name"] = [(one.name, one.grid, one.block, one.stream) for one in kernels]
    attributed = all(one.launch != "unknown" for one in kernels)
    facts["their operators"] = [one.operators for one in kernels] if attributed else None
    return facts


def outcome(path: Path, document: Document, healthy: Facts) -> tuple[Outcome, tuple[str, ...]]:
    """What is said of a faulty document, and in which facts it is wrong if nothing is.

    "shown": nothing is said, but the rounds have different numbers of kernels.
    """
    path.write_bytes(msgspec.json.encode(document))
    try:
        profile = Profile.from_trace(path)
    except TraceError:
        return "told", ()
    if not profile.integrity.complete or profile.integrity.leaked:  # both are said in words
        return "told", ()
    found = facts_of(profile)
    changed = [name for name, value in found.items() if value != healthy[name]]
    wrong = tuple(name for name in changed if found[name] is not None)
    if wrong and len(set(profile.metrics["kernels"].rounds)) > 1:
        return "shown", wrong
    if wrong:
        return "silent", wrong
    return ("told" if changed else "harmless"), ()


# -- which events --------------------------------------------------------------------------------


def spans(events: list[Event], *categories: str) -> list[Event]:
    return [one for one in events if one["ph"] == "X" and one.get("cat") in categories]


def calls(events: list[Event]) -> list[Event]:
    return spans(events, "cuda_runtime", "cuda_driver")


def id_of(event: Event) -> int:
    return int(event["args"].get("correlation", -1))


def activities(events: list[Event], *categories: str) -> list[Event]:
    """Those that some call of the file has launched, the sentinels' kernels apart."""
    known = {id_of(call) for call in calls(events)}
    return [
        one
        for one in spans(events, *(categories or ACTIVITIES))
        if id_of(one) in known and "spin_kernel" not in one["name"]
    ]


def launching(events: list[Event], *categories: str) -> list[Event]:
    """The calls whose activities are of these categories."""
    ids = {id_of(one) for one in activities(events, *categories)}
    return [call for call in calls(events) if id_of(call) in ids]


def waiting(events: list[Event]) -> list[Event]:
    return [call for call in calls(events) if "Synchronize" in call["name"]]


def without(events: list[Event], *victims: Event) -> list[Event]:
    gone = {id(one) for one in victims}
    return [one for one in events if id(one) not in gone]


def changed(events: list[Event], victim: Event, **fields: object) -> list[Event]:
    return [{**one, **fields} if one is victim else one for one in events]


# -- the kinds -----------------------------------------------------------------------------------


def _each(
    choose: Callable[[list[Event]], list[Event]],
    harm: Callable[[list[Event], Event], list[Event]],
) -> Callable[[list[Event], random.Random], Faulty]:
    """The fault once for each event that it can befall."""

    def faulty(events: list[Event], _: random.Random) -> Faulty:
        for victim in choose(events):
            yield partial(harm, events, victim)

    return faulty


def _once(
    harm: Callable[[list[Event]], list[Event]],
) -> Callable[[list[Event], random.Random], Faulty]:
    """A fault of the whole file; none where it leaves all as it is."""

    def faulty(events: list[Event], _: random.Random) -> Faulty:
        after = harm(events)
        if len(after) != len(events):
            yield lambda: after

    return faulty


def _lost_with_its_call(events: list[Event], victim: Event) -> list[Event]:
    call = [one for one in calls(events) if id_of(one) == id_of(victim)]
    return without(events, victim, *call)


def _swapped(*categories: str) -> Callable[[list[Event], random.Random], Faulty]:
    """Two activities of different calls, each with the other's correlation id."""

    def faulty(events: list[Event], chance: random.Random) -> Faulty:
        ours = activities(events, *categories)
        for victim in ours:
            others = [one for one in ours if id_of(one) != id_of(victim)]
            if others:
                other = chance.choice(others)
                one = {**victim, "args": {**victim["args"], "correlation": id_of(other)}}
                two = {**other, "args": {**other["args"], "correlation": id_of(victim)}}
                yield partial(_replaced, events, {id(victim): one, id(other): two})

    return faulty


def _replaced(events: list[Event], new: dict[int, Event]) -> list[Event]:
    return [new.get(id(one), one) for one in events]


def _later(by: float) -> Callable[[list[Event], Event], list[Event]]:
    return lambda events, victim: changed(events, victim, ts=float(victim["ts"]) + by)


def _twice(events: list[Event], victim: Event) -> list[Event]:
    return [*events, copy.deepcopy(victim)]


def _arrows(events: list[Event]) -> list[Event]:
    return [one for one in events if one["ph"] not in ("s", "f")]


def _shuffled(events: list[Event], chance: random.Random) -> Faulty:
    yield lambda: chance.sample(events, len(events))


def _tail(events: list[Event], chance: random.Random) -> Faulty:
    """The file ends early, and something closed its brackets."""
    for _ in range(8):
        end = chance.randrange(len(events) // 4, len(events))
        yield partial(events.__getitem__, slice(end))


def _rounds(events: list[Event]) -> list[Event]:
    """The marks where rounds begin and end."""
    return [e for e in spans(events, "user_annotation") if re.search("::(begin|end)#", e["name"])]


def _host_names(events: list[Event]) -> list[Event]:
    return launching(events, "kernel")


KINDS: dict[str, Callable[[list[Event], random.Random], Faulty]] = {
    "a kernel lost": _each(lambda e: activities(e, "kernel"), without),
    "a copy lost": _each(lambda e: activities(e, "gpu_memcpy"), without),
    "a memset lost": _each(lambda e: activities(e, "gpu_memset"), without),
    "a launch call lost": _each(lambda e: launching(e, "kernel"), without),
    "a copy's call lost": _each(lambda e: launching(e, "gpu_memcpy"), without),
    "a waiting call lost": _each(waiting, without),
    "a mark of a round lost": _each(_rounds, without),
    "a kernel and its call lost": _each(lambda e: activities(e, "kernel"), _lost_with_its_call),
    "all calls lost": _once(lambda e: without(e, *calls(e))),
    "all kernels lost": _once(lambda e: without(e, *spans(e, "kernel"))),
    "all of the device lost": _once(lambda e: without(e, *calls(e), *spans(e, *ACTIVITIES))),
    "all arrows lost": _once(_arrows),
    "the end lost": _tail,
    "a kernel twice": _each(lambda e: activities(e, "kernel"), _twice),
    "a copy twice": _each(lambda e: activities(e, "gpu_memcpy"), _twice),
    "a memset twice": _each(lambda e: activities(e, "gpu_memset"), _twice),
    "a call twice": _each(calls, _twice),
    "an operator twice": _each(lambda e: spans(e, "cpu_op"), _twice),
    "a mark of a round twice": _each(_rounds, _twice),
    "a kernel 1 ms late": _each(lambda e: activities(e, "kernel"), _later(1_000.0)),
    "a kernel 1 ms early": _each(lambda e: activities(e, "kernel"), _later(-1_000.0)),
    "a kernel 10 s late": _each(lambda e: activities(e, "kernel"), _later(FAR_US)),
    "a launch call 10 s late": _each(lambda e: launching(e, "kernel"), _later(FAR_US)),
    "a launch call 10 s early": _each(lambda e: launching(e, "kernel"), _later(-FAR_US)),
    "ids of two kernels swapped": _swapped("kernel"),
    "ids of two activities swapped": _swapped(*ACTIVITIES),
    "a launch call renamed": _each(
        _host_names, lambda e, victim: changed(e, victim, name="somethingElse")
    ),
    "events shuffled": _shuffled,
}
