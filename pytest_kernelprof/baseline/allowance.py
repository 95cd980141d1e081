"""How much more of a metric is allowed than before: by how it was written, ``cuda_time:5%``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_kernelprof.schema.metrics import METRICS, MetricSpec
from pytest_kernelprof.units import parse_bytes, parse_percent, parse_time

TIME_MARGIN = 0.10
"""By so much a median of another run may be larger: two runs of the same code differ by where
memory lies, by clocks and by the card."""

# Healthy traces miss some.
_NOT_EXACT_ENOUGH = ("memsets",)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a metric may grow by.

    Attributes:
        metric: its name.
        share: as a fraction of what it was. amount: in its unit, on top.
        judged: whether more than that fails. asked: whether somebody named it.
    """

    metric: str
    share: float = 0.0
    amount: float = 0.0
    judged: bool = True
    asked: bool = True

    def most(self, old: float) -> float:
        """The largest value that is allowed where it was ``old``."""
        return old * (1 + self.share) + self.amount


def parse_allowance(text: str) -> Allowance:
    """What ``METRIC:MARGIN`` says: a percentage, a count, or an amount with its unit.

    Raises:
        ValueError: it is not of that form; the message says what is.
    """
    name, colon, margin = text.partition(":")
    spec = METRICS.get(name)
    if spec is None or spec.kind == "shown":
        known = ", ".join(name for name, spec in METRICS.items() if spec.kind != "shown")
        raise ValueError(f"{name!r} is no metric that can be judged; these are: {known}")
    if not colon or not margin.strip():
        raise ValueError(f"{text!r} says no margin: write {name}:{_example(spec)}")
    try:
        if margin.strip().endswith("%"):
            return Allowance(name, share=parse_percent(margin))
        return Allowance(name, amount=_amount(spec, margin))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write for example {name}:{_example(spec)}") from None


def _amount(spec: MetricSpec, margin: str) -> float:
    if spec.unit == "us":
        return parse_time(margin)
    if spec.unit == "bytes" and not margin.strip().isdigit():
        return parse_bytes(margin)
    if not margin.strip().isascii() or not margin.strip().isdigit():
        raise ValueError(f"{margin!r} is no whole number from 0 on and no percentage")
    return float(margin)


def _example(spec: MetricSpec) -> str:
    return {"us": "5%", "bytes": "1 MB", "count": "0"}[spec.unit]


def allowances(written: tuple[Allowance, ...]) -> dict[str, Allowance]:
    """What each metric may grow by. Where nothing is written, counts and bytes may not grow, and
    times are looked at and judged by nothing; else only what is written is judged.

    Raises:
        ValueError: a metric is written twice.
    """
    twice = [name for name, n in Counter(one.metric for one in written).items() if n > 1]
    if twice:
        raise ValueError(f"{', '.join(twice)} is named twice; say it once")
    usual = {
        name: Allowance(
            name,
            share=TIME_MARGIN if spec.kind == "timed" else 0.0,
            judged=spec.kind == "exact" and not written and name not in _NOT_EXACT_ENOUGH,
            asked=False,
        )
        for name, spec in METRICS.items()
        if spec.kind != "shown"
    }
    return {**usual, **{one.metric: one for one in written}}
