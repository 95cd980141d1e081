"""Command line and ini file, read once into a frozen ``Settings``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = ("auto", "cuda", "cpu")
POLICIES = ("warn", "fail", "pass")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for. Each field is an option ``--kernelprof-FIELD`` and an ini key
    ``kernelprof_FIELD``; the command line wins. None means "not said"."""

    report: bool = False
    all: bool = False
    only: bool = False
    disable: bool = False
    require_gpu: bool = False
    stacks: bool = False
    device: str = "auto"
    rounds: int | None = None
    warmup: int | None = None
    flush_l2: bool = True
    trace_dir: str | None = None
    inconclusive: str = "warn"
    lock_timeout: float = 600.0
    spread_workers: bool = True


def _flag(text: str) -> bool:
    known = {"true": True, "yes": True, "on": True, "1": True}
    known |= {"false": False, "no": False, "off": False, "0": False}
    try:
        return known[text.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def _device(text: str) -> str:
    if text not in DEVICES:
        raise ValueError(f"expected one of {', '.join(DEVICES)}")
    return text


def _policy(text: str) -> str:
    if text not in POLICIES:
        raise ValueError(f"expected one of {', '.join(POLICIES)}")
    return text


def _positive(text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < 1:
        raise ValueError("expected a whole number of one or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError("expected a number of seconds above zero, for example 600")
    return seconds


def _folder(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a folder")
    return text


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "report": (_flag, "print a table of all profiles at the end"),
    "all": (_flag, "profile the call phase of every test, no code changed"),
    "only": (_flag, "run only the tests that use pytest-kernelprof"),
    "disable": (_flag, "run the wrapped code plainly, once; profile and limit nothing"),
    "require_gpu": (
        _flag,
        "fail tests that would be skipped, or run on the CPU instead, for want of a GPU (for CI)",
    ),
    "stacks": (_flag, "record Python frames, so that one-shot profiles name source lines too"),
    "device": (
        _device,
        "auto (default), cuda, or cpu, which counts compute operators instead of kernels",
    ),
    "rounds": (_positive, "profiled rounds of each call (default: 2, with timed limits 12)"),
    "warmup": (_positive, "calls before the first profiled one (default: 1); more if cold"),
    "flush_l2": (_flag, "flush the GPU's L2 cache before each timed round (default: true)"),
    "inconclusive": (
        _policy,
        "what a time does whose interval still holds its limit after 96 rounds: warn (default), "
        "fail or pass",
    ),
    "trace_dir": (_folder, "write every profile's Chrome trace (json.gz) into this folder"),
    "lock_timeout": (
        _seconds,
        "seconds to wait for another process that times on the same GPU (default: 600)",
    ),
    "spread_workers": (
        _flag,
        "give each pytest-xdist worker one of the GPUs, in turn (default: true)",
    ),
}
_SWITCHES = ("report", "all", "only", "disable", "require_gpu", "stacks")
_INI_ONLY = ("flush_l2", "spread_workers")


def add_options(parser: pytest.Parser) -> None:
    """Register the options and ini keys. Options default to None, so that ini keys count."""
    group = parser.getgroup("kernelprof", "GPU kernel profiles and limits (pytest-kernelprof)")
    for name, (_, help_text) in _PARSERS.items():
        flag = "--kernelprof-" + name.replace("_", "-")
        if name in _SWITCHES:
            group.addoption(flag, action="store_const", const="true", default=None, help=help_text)
        elif name not in _INI_ONLY:
            group.addoption(flag, metavar=name.upper(), default=None, help=help_text)
        parser.addini(f"kernelprof_{name}", help_text, type="string", default=None)


def read_settings(config: pytest.Config) -> Settings:
    """The settings of a run.

    Raises:
        pytest.UsageError: a value is not of its form; the message names the option and the form.
    """
    values: dict[str, Any] = {}
    for name, (parse, _) in _PARSERS.items():
        flag, key = "--kernelprof-" + name.replace("_", "-"), f"kernelprof_{name}"
        text, where = config.getoption(key, default=None), flag
        if text is None:
            text, where = _ini(config, key), f"ini key {key}"
        if text is None:
            continue
        try:
            values[name] = parse(text)
        except ValueError as error:
            raise pytest.UsageError(f"{where}: got {text!r}; {error}") from error
    return Settings(**values)


def _ini(config: pytest.Config, key: str) -> str | None:
    try:
        value = config.getini(key)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"ini key {key}: {error}") from error
    return None if value is None or value == "" else str(value)
