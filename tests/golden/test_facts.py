"""All formats state the same facts of each scenario: what failed and why, what changed, what was
not judged, the verdict, the exit status."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import described
import facts
import pytest


@functools.cache
def read(scenario: str, file: str) -> facts.Facts:
    """What a kept text says."""
    return facts.FORMATS[file]((described.KEPT / scenario / file).read_text(encoding="utf-8"))


def wanted(scenario: str, file: str, fact: str) -> Any:
    """What a kept text should say of a fact; None where it is not about that, by its design."""
    right = facts.expected(described.scenario(scenario).facts)
    return facts.as_told(right, fact, read(scenario, file), file)


def _cases() -> Iterator[Any]:
    for scenario, file in itertools.product(described.names(), facts.FORMATS):
        if not (described.KEPT / scenario / file).exists():  # not all are compared
            continue
        for fact in (field.name for field in dataclasses.fields(facts.Facts)):
            if fact != "has_reasons" and wanted(scenario, file, fact) is not None:
                yield pytest.param(scenario, file, fact, id=f"{scenario}-{file}-{fact}")


@pytest.mark.parametrize(("scenario", "file", "fact"), list(_cases()))
def test_a_format_states_the_facts(scenario: str, file: str, fact: str) -> None:
    assert getattr(read(scenario, file), fact) == wanted(scenario, file, fact)
