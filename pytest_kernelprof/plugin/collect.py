"""A profile and its verdicts as plain builtins, the one form in which they leave a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_kernelprof.limits.evaluate import Verdict
    from pytest_kernelprof.measure.runner import Measurement
    from pytest_kernelprof.schema.conditions import Conditions

_ORDER = ("fail", "unavailable", "incomplete", "inconclusive", "pass", "xfail", "no limit")


def row(test: str, measurement: Measurement, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One row of the report. Only str, int, float, bool, None, list and dict: xdist carries it."""
    profile = measurement.profile
    integrity = profile.integrity
    return {
        "test": text(test),
        "label": text(profile.label),
        "device_kind": profile.device_kind,
        "place": text(profile.place),
        "verdict": overall(measurement, verdicts),
        "limits": [
            {"limit": v.limit.name, "outcome": v.outcome, "text": text(v.text)} for v in verdicts
        ],
        "metrics": {
            name: {
                "value": _number(metric.value),
                "low": _number(metric.low),
                "high": _number(metric.high),
                "rounds": len(metric.rounds),
                "unit": metric.unit,
                "why": text(metric.why),
            }
            for name, metric in profile.metrics.items()
        },
        "conditions": _conditions(profile.conditions),
        "bound": {"verdict": profile.bound.verdict, "reason": text(profile.bound.reason)},
        "integrity": {
            "complete": integrity.complete,
            "problems": [text(problem) for problem in integrity.problems],
            "launches": integrity.launches,
            "matched": integrity.matched,
            "unknown_launches": integrity.unknown_launches,
            "leaked": integrity.leaked,
            "graph_replays": integrity.graph_replays,
            "clock_skew": bool(integrity.clock_skew),
            "cold": [text(sign) for sign in integrity.cold],
            "settled": measurement.settled,
            "retakes": measurement.retakes,
        },
    }


def _conditions(found: Conditions) -> dict[str, Any]:
    return {
        "contended": found.contended,
        "discarded_rounds": found.discarded_rounds,
        "words": text(found.words()),
    }


def overall(measurement: Measurement, verdicts: Sequence[Verdict]) -> str:
    """The worst outcome of a profile. A violated limit is certain even if events were lost."""
    outcomes: set[str] = {str(verdict.outcome) for verdict in verdicts} - {"not applicable"}
    if not measurement.profile.integrity.complete:
        outcomes = (outcomes & {"fail"}) | {"incomplete"}
    return next((o for o in _ORDER if o in outcomes), "no limit")


def expected_to_fail(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a test that was expected to fail, and did."""
    return [{**one, "verdict": "xfail"} if one["verdict"] == "fail" else one for one in rows]


def severity(verdict: str) -> int:
    """A sort key: worst first."""
    return _ORDER.index(verdict) if verdict in _ORDER else 0


def text(words: str) -> str:
    """Lone surrogates (from odd file names) would end an xdist session."""
    return str(words).encode("utf-8", "backslashreplace").decode()


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
