"""Writes the tables of the reference that the code knows, between their markers in its pages."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest_kernelprof
from pytest_kernelprof import api, errors
from pytest_kernelprof.cli.main import COMMANDS
from pytest_kernelprof.limits.kinds import KINDS
from pytest_kernelprof.plugin.benchmark import KernelBenchmark
from pytest_kernelprof.plugin.fixture import Comparison, KernelProfile
from pytest_kernelprof.plugin.settings import GROUPS, MARKER_LINE, OPTIONS, Kind, Option
from pytest_kernelprof.records.metrics import DIRECTIONS, METRICS
from pytest_kernelprof.records.profile import STATUSES
from pytest_kernelprof.summary.records import MARKS, Mark
from pytest_kernelprof.system import TRIED, WITHOUT

HERE = Path(__file__).parent
_BLOCK = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
_CALL = re.compile(r"\w+\([^)]*\)")
_NAME = re.compile(r"--[\w-]+|[\w./]*_[\w./:%=*]*|\w+=\"[^\"]*\"")


def signatures() -> str:
    """Return how the objects of the fixtures are called, without types."""
    calls = {
        "kernel_profile": KernelProfile.__call__,
        **{
            f"kernel_profile.{one}": getattr(KernelProfile, one)
            for one in ["run", "region", "load", "limit", "work", "ranks", "compare", "compare_all"]
        },
        "comparison.min_speedup": Comparison.min_speedup,
        "comparison.not_slower": Comparison.not_slower,
        "kernel_benchmark": KernelBenchmark.__call__,
        "kernel_benchmark.run": KernelBenchmark.run,
        "pytest_kernelprof.profile": api.profile,
        "pytest_kernelprof.allow": pytest_kernelprof.allow.__init__,
    }
    lines = (
        textwrap.fill(f"{name}{_signature(call)}", 100, subsequent_indent="    ")
        for name, call in calls.items()
    )
    return "\n".join(["```py", *lines, "```"])


def _signature(call: Callable[..., object]) -> str:
    found = inspect.signature(call)
    bare = [
        one.replace(annotation=one.empty)
        for name, one in found.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(bare))


def options_table() -> str:
    """Return the options in the groups of ``pytest --help``, then the keys of ini files alone."""
    tables = [
        _table(
            f"{group} |",
            (f"{_code(_option_form(one, kind))} | {_words(one.help)}" for one, kind in found),
        )
        for group in GROUPS
        if (found := [(one, kind) for one, kind in OPTIONS.items() if one.group == group])
    ]
    ini = (
        f"ini only: {_code(one.key)} | {_words(one.help)}" for one in OPTIONS if one.group is None
    )
    return "\n\n".join([*tables, _table("ini files |", ini)])


def _option_form(option: Option[Any], kind: Kind) -> str:
    return f"{option.flag}={kind.metavar}" if kind.metavar else option.flag


def markers_table() -> str:
    """Return the markers: their forms and what ``pytest --markers`` says of them."""
    form, _, words = MARKER_LINE.rpartition(": ")
    lines = [*((kind.form, kind.help) for kind in KINDS.values()), (form, words)]
    rows = (f"{_CALL.sub(lambda found: _code(found[0]), f)} | {_words(w)}" for f, w in lines)
    return _table("marker | limit", rows)


def metrics_table() -> str:
    """Return the metrics by kind and unit, and those that the CPU has."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, spec in METRICS.items():
        if not name.endswith(tuple(f"_{one}" for one in DIRECTIONS)):
            names.setdefault((spec.kind, spec.unit), []).append(name)
    rows = (f"{kind} | {unit} | {_codes(found)}" for (kind, unit), found in names.items())
    here = [name for name, spec in METRICS.items() if "cpu" in spec.devices]
    directed = [name for name in METRICS if f"{name}_{DIRECTIONS[0]}" in METRICS]
    suffixes = _codes(f"_{one}" for one in DIRECTIONS)
    return "\n\n".join(
        [
            _table("kind | unit | metrics", rows),
            f"By direction: {_codes(directed)} with {suffixes}.",
            f"On the CPU: {_codes(here)}.",
        ]
    )


def outcomes_table() -> str:
    """Return the signs of rows and their words, worst first."""
    by_sign: dict[Mark, list[str]] = {}
    for mark in MARKS.values():
        key = mark._replace(word="", tone="none")
        by_sign.setdefault(key, []).append(mark.word)
    rows = (f"{one.sign} | {_code(one.letter)} | {', '.join(w)}" for one, w in by_sign.items())
    table = _table("sign | letter | row", rows)
    return f"Outcomes of a limit, worst first: {_codes(STATUSES)}.\n\n{table}"


def commands_table() -> str:
    """Return the subcommands with their help and exit statuses."""
    commands = argparse.ArgumentParser(prog="kernelprof").add_subparsers()
    for name, add in COMMANDS.items():
        add(name, commands)
    rows = (
        f"{_code(name)} | {(one.description or '').rstrip('.')} | "
        f"{(one.epilog or '').partition('exit status: ')[2]}"
        for name, one in commands.choices.items()
    )
    return _table("command | what it does | exit status", rows)


def exceptions_table() -> str:
    """Return the public exceptions with their bases and what their docstrings begin with."""
    found = [
        one
        for name, one in vars(errors).items()
        if name in pytest_kernelprof.__all__ and inspect.isclass(one)
    ]
    return _table("exception | when", (f"{_code(_bases(one))} | {_first(one)}" for one in found))


def _bases(kind: type) -> str:
    """Return its name with what else it is, beside the base of all."""
    bases = [
        one.__name__ for one in kind.__bases__ if one not in (errors.KernelprofError, Exception)
    ]
    return f"{kind.__name__}({', '.join(bases)})" if bases else kind.__name__


def _first(kind: type) -> str:
    paragraph = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    return _words(" ".join(paragraph.split()).partition(". ")[0].rstrip("."))


def versions_table() -> str:
    """Return the versions that the whole suite has cells for."""
    rows = (
        f"{name} | {', '.join([*series, *(['none'] if name in WITHOUT else [])])}"
        for name, series in TRIED.items()
    )
    return _table("package | series", rows)


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "reference.md": {
        "signatures": signatures,
        "markers": markers_table,
        "metrics": metrics_table,
        "outcomes": outcomes_table,
        "exceptions": exceptions_table,
        "versions": versions_table,
    },
    "options.md": {"options": options_table, "commands": commands_table},
}
"""What makes each block of a page, by its name there."""


def filled(page: str, name: str) -> str:
    """Return a page with all of its blocks as the code has them.

    Args:
        page: its text. name: its file.

    Raises:
        ValueError: the page lacks a block, or has one twice, or one that nothing makes.
    """
    named, blocks = [found[2] for found in _BLOCK.finditer(page)], BLOCKS[name]
    if sorted(named) != sorted(blocks):
        raise ValueError(f"the blocks of {name} are {named}; expected {list(blocks)}, each once")
    return _BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]()}\n\n{found[3]}", page)


def _table(head: str, rows: Iterable[str]) -> str:
    rule = "|---" * (head.count("|") + 1) + "|"
    return "\n".join([f"| {head} |", rule, *(f"| {row} |" for row in rows)])


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts))


def _words(text: str) -> str:
    """Return prose in which names are code: Markdown would take their underscores for its own."""
    return _NAME.sub(lambda found: _code(found[0]), text.replace("``", "").replace("%%", "%"))


if __name__ == "__main__":
    for name in BLOCKS:
        page = HERE / name
        page.write_text(filled(page.read_text(encoding="utf-8"), name), encoding="utf-8")
