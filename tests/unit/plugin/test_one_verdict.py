"""A measurement is read, linked and judged once; one that breaks a limit once more, for lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_kernelprof.limits.kinds import parse_limit
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.measure import sessions
from pytest_kernelprof.measure.policy import Needs, plan_of
from pytest_kernelprof.measure.runner import measure
from pytest_kernelprof.plugin import ledger
from pytest_kernelprof.plugin.ledger import Ledger
from pytest_kernelprof.plugin.outcome import Request
from pytest_kernelprof.records.document import Test

X = torch.ones(4)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of the costly things was done."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return function(*args, **kwargs)

        return call

    for module, name in ((sessions, "read_trace"), (sessions, "reading_of"), (ledger, "evaluate")):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    return counted


def two_operators() -> torch.Tensor:
    return (X + 1) * 2


@pytest.mark.parametrize(
    ("allowed", "outcome", "taken"), [(2, "passed", 1), (1, "failed", 2)], ids=["kept", "broken"]
)
def test_a_profile_is_read_once_and_once_more_for_lines_and_judged_once(
    allowed: int, outcome: str, taken: int, calls: Counter[str]
) -> None:
    _, measurement = measure(two_operators, plan_of("cpu", Needs()))
    assert calls == {"read_trace": 1, "reading_of": 1}
    kept = Ledger(Marks(limits=(parse_limit("max_kernels", (allowed,), {}),)))
    profile = kept.keep(measurement, Request("kernel_profile"))
    assert calls == {"read_trace": taken, "reading_of": taken, "evaluate": 1}

    assert [verdict.outcome for verdict in profile.record.verdicts] == [outcome]
    has_lines = [bool(kernel.source) for kernel in profile.kernels]
    assert has_lines == [outcome == "failed"] * 2
    assert kept.records().profiles == (profile.record,)
    assert kept.report(Test("test_it")).profiles == (profile.record,)
    assert profile.table()
    assert calls == {"read_trace": taken, "reading_of": taken, "evaluate": 1}
