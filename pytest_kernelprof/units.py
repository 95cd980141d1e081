"""Quantities with units: parse what users write, format what they read; text likewise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")

_TIME_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_PREFIXES = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_DURATION_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
# Compiled when the first limit with a unit is read: a run without one does not wait for it.
_QUANTITY = r"(?i:\s*([+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*(\S*)\s*)"


def parse_time(text: str) -> float:
    """Microseconds from a string such as ``"200us"``, ``"1.5 ms"`` or ``"0.2s"``.

    Raises:
        ValueError: no number, no known unit, or a negative value; the message shows the forms.
    """
    number, unit = _split(text, "a time", '"200us", "1.5ms" or "2s"')
    if unit not in _TIME_US:
        raise ValueError(f"{text!r} has no known time unit; write ns, us, ms or s, as in '200us'")
    return number * _TIME_US[unit]


def parse_duration(text: str) -> float:
    """Seconds from a string such as ``"90s"``, ``"10min"`` or ``"1h"``.

    Raises:
        ValueError: no number, no known unit, or nothing above zero.
    """
    number, unit = _split(text, "a duration", '"90s", "10min" or "1h"')
    if unit not in _DURATION_S or not number:
        raise ValueError(
            f"{text!r} is not a duration above zero, for example '90s', '10min' or '1h'"
        )
    return number * _DURATION_S[unit]


def parse_bytes(text: str) -> int:
    """Whole bytes, rounded, from a string such as ``"1 MB"`` (10**6) or ``"64 MiB"`` (2**20).

    Raises:
        ValueError: no number, no known unit, or a negative value.
    """
    number, unit = _split(text, "a size", '"512 B", "1 MB" or "64 MiB"')
    if unit.lower() not in _BYTES:
        raise ValueError(
            f"{text!r} has no known size unit; write B, KB, MB, GB, KiB, MiB or GiB, as in '1 MB'"
        )
    return math.floor(number * _BYTES[unit.lower()] + 0.5)


def parse_rate(text: str, unit: str) -> float:
    """Operations or bytes a second from a string such as ``"600 TFLOP/s"`` or ``"3 TB/s"``; the
    fraction of a percentage.

    Args:
        unit: "FLOP/s" or "B/s".

    Raises:
        ValueError: no number, no known unit, nothing above zero, or more than 100 %; the message
            shows the forms.
    """
    known = {"%": 0.01, **{f"{prefix}{unit}": scale for prefix, scale in _PREFIXES.items()}}
    form = f'"3 T{unit}", or "80%" of the peak'
    number, given = _split(text, "a rate", form)
    if given not in known or not number or (given == "%" and number > 100):
        of = ", ".join([*known][1:])
        raise ValueError(f"{text!r} is neither above 0 in {of} nor up to 100%; write {form}")
    return number * known[given]


def parse_percent(text: str) -> float:
    """The fraction of a percentage: ``"30%"`` is 0.3.

    Raises:
        ValueError: not a number followed by ``%``, or outside 0 to 100.
    """
    number, unit = _split(text, "a percentage", '"30%"')
    if unit != "%" or number > 100:
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%, for example '30%'")
    return number / 100


def parse_times(value: object) -> float:
    """Return a factor, such as a speedup: a finite number above zero.

    Raises:
        ValueError: it is something else.
    """
    try:
        number = float(value) if isinstance(value, Real) else 0.0
    except OverflowError:
        number = 0.0
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise ValueError(f"{value!r}: expected a number above zero")
    return number


WHOLE_NUMBER = "a whole number of one or more"
"""What ``whole_number`` takes, for messages."""


def whole_number(value: object) -> int:
    """Return the value if it is an int (no bool, no text) of one or more.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected {WHOLE_NUMBER}")
    return value


def _split(text: str, what: str, forms: str) -> tuple[float, str]:
    match = re.fullmatch(_QUANTITY, text)
    if match is None:
        raise ValueError(f"{text!r} is not {what}; write {forms}")
    number = float(match[1])
    if number < 0 or not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite value of zero or more; write {forms}")
    return number, match[2]


def format_time(us: float) -> str:
    """A time in microseconds as ``234.9us``, ``1.25ms`` or ``2.10s``, four digits at most."""
    if not math.isfinite(us):
        return "?"
    scales = ((1.0, "us"), (1e3, "ms"))
    scale, unit = next((one for one in scales if abs(us / one[0]) < 999.95), (1e6, "s"))
    digits = 1 if unit == "us" or abs(us / scale) >= 100 else 2
    return f"{us / scale:.{digits}f}{unit}"


def format_bytes(count: float) -> str:
    """A size as ``512 B``, ``4.19 MB`` and so on, decimal units."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    scales = ((1e3, "KB"), (1e6, "MB"))
    scale, unit = next((one for one in scales if abs(count) < 999.5 * one[0]), (1e9, "GB"))
    return f"{count / scale:.3g} {unit}"


def format_rate(unit: str, value: float) -> str:
    """A rate in "FLOP/s" or "B/s" as ``612.4 TFLOP/s`` or ``3.12 TB/s``, four digits at most."""
    scaled = time_unit([value], unit)
    return f"{value / scaled.scale:.4g}{scaled.name}"


def printable(text: str) -> str:
    """Make text safe for one line of a terminal: what has no glyph (control sequences, line ends,
    marks that change the direction of writing) becomes its escape."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def first_of(texts: Sequence[str], most: int, more: str = "{} more") -> list[str]:
    """The first texts, and how many more there are, if any."""
    left = len(texts) - most
    return [*texts[:most], *([more.format(left)] if left > 0 else [])]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by what they have in common, wherever they stand; in the order of the first of each."""
    found: dict[Key, list[Item]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


def name_of(called: object) -> str:
    """Return the name of a callable in one line; its type if it has no name."""
    return printable(str(getattr(called, "__name__", None) or type(called).__name__))


class TimeUnit(NamedTuple):
    """How the times of a column, or rates, are written: scaled, with so many decimals."""

    name: str
    scale: float
    decimals: int

    def words(self, us: float, decimals: int | None = None) -> str:
        """Return a value without its unit."""
        return f"{us / self.scale:.{self.decimals if decimals is None else decimals}f}"


def time_unit(values: Iterable[float], unit: str = "us") -> TimeUnit:
    """Choose the unit of microseconds: one decimal if the largest is below 1 ms, none above, and
    milliseconds with two from 100 ms on.

    Args:
        unit: of the values; of "FLOP/s" and "B/s" the prefix is chosen.
    """
    largest = max(values, default=0.0)
    if unit.endswith("/s"):
        reached = (one for one in reversed(_PREFIXES.items()) if largest >= 0.9995 * one[1])
        prefix, scale = next(reached, ("M", 1e6))
        return TimeUnit(f" {prefix}{unit}", scale, 1 if largest >= 99.95 * scale else 2)
    if largest < 1e3:
        return TimeUnit("us", 1.0, 1)
    return TimeUnit("us", 1.0, 0) if largest <= 1e5 else TimeUnit("ms", 1e3, 2)
