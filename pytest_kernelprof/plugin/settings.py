"""What a user asked for: of a run, on the command line and by ini keys; of a test, by the marker.

Named tuples, as in ``options``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.marks import OPTIONS_MARKER
from pytest_kernelprof.plugin.options import GROUPS, MARKED, OPTIONS, OPTIONS_FORM, RUN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.plugin.options import Option

# What pytest's own conversions say last: the value that was given. Its versions raise different
# exceptions, and none tells the value apart from the words around it.
_GIVEN = r"(?s:(?:, (?:but )?got:? |base 10: |to float: |truth value )(.*)\Z)"


class Settings(NamedTuple):
    """What the user asked for, or the defaults of ``OPTIONS``: a field for each of them. None
    means "not said".

    Attributes:
        revision: the revision or the folder that ``against`` names.
        run_document: the run document that it names.
    """

    report: bool
    all: bool
    only: bool
    disable: bool
    require_gpu: bool
    warmup: int
    rounds: int | None
    device: str
    flush_l2: bool
    stacks: bool
    undecided: str
    blind: str
    warn_only: bool
    trace_dir: str | None
    json: str | None
    html: str | None
    markdown: str | None
    github: bool
    benchmark_json: str | None
    against: tuple[str, ...]
    against_timeout: float
    against_exact: bool
    margin: float | None
    against_python: str | None
    against_copy: tuple[str, ...]
    against_prepare: str | None
    fail_on: tuple[str, ...]
    update: bool
    require_snapshots: bool
    lock_timeout: float
    rank_timeout: float
    spread_workers: bool
    revision: str | None = None
    run_document: str | None = None

    @property
    def run_files(self) -> dict[str, str]:
        """The files that are made of the run as it ends: the path by the option that asks."""
        return {name: getattr(self, name) for name in RUN_FILES if getattr(self, name)}


class Options(NamedTuple):
    """Options that ``@pytest.mark.kernelprof(...)`` gives a test; None where it says nothing."""

    warmup: int | None = None
    rounds: int | None = None
    device: str | None = None
    flush_l2: bool | None = None
    stacks: bool | None = None
    margin: float | None = None
    ranks: int | None = None
    other_processes: str | None = None


def add_options(parser: pytest.Parser) -> None:
    """Register the options and ini keys. Options default to None, so that ini keys count."""
    groups = {name: parser.getgroup(heading) for name, heading in GROUPS.items()}
    for option in OPTIONS:
        if option.group:
            form: dict[str, Any] = {"metavar": option.kind.metavar}
            if option.kind.metavar is None:
                form = {"action": "store_const", "const": True}
            if option.kind.ini_type == "linelist":
                form["action"] = "append"
            groups[option.group].addoption(
                option.flag, dest=option.key, default=None, help=option.help, **form
            )
        # Without this default, pytest's is 0 or False, which could have been said, too.
        parser.addini(option.key, option.help, type=option.kind.ini_type, default=None)


def read_settings(config: pytest.Config) -> Settings:
    """The settings of a run: the command line wins over the ini key, and that over the default.

    Raises:
        pytest.UsageError: a value is not of its form; the message names the option and the form.
    """
    return Settings(**{option.name: _setting(config, option) for option in OPTIONS})


def quiet(settings: Settings) -> Settings:
    """The settings of a run for which another one reports: it writes no files and shows no rows."""
    files: dict[str, Any] = dict.fromkeys(RUN_FILES)
    return settings._replace(**files, report=False, github=False)


def of_a_reference(settings: Settings) -> Settings:
    """The settings of a run that serves another one (--kernelprof-against): that one reports, and
    what would fail here fails nothing."""
    return quiet(settings)._replace(trace_dir=None, only=False, undecided="pass")


def _setting(config: pytest.Config, option: Option) -> Any:
    given, where = config.getoption(option.key, default=None), option.flag
    value = option.kind.read(given) if isinstance(given, str) else given
    if given is None:
        given = value = _ini(config, option)
        where = f"ini key {option.key}"
    if given is None:
        return option.kind.unset if option.default is None else option.default
    try:
        return option.kind.check(value)
    except ValueError:
        raise pytest.UsageError(
            f"{where}: got {given!r}; expected {option.kind.expected}"
        ) from None


def _ini(config: pytest.Config, option: Option) -> object:
    """The ini key's value, or None. It has pytest's type, which need not be what we expect."""
    try:
        value = config.getini(option.key)
    except (TypeError, ValueError, pytest.UsageError) as error:
        found = re.search(_GIVEN, str(error))
        given = f"got {found[1]}" if found else str(error)
        raise pytest.UsageError(
            f"ini key {option.key}: {given}; expected {option.kind.expected}"
        ) from error
    return None if value == "" else value


def options_of(marks: Iterable[pytest.Mark]) -> Options:
    """The merged options of ``kernelprof(...)`` markers, the innermost given first.

    Raises:
        MarkerError: an unknown option or a value of the wrong form.
    """
    merged: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise MarkerError(
                f"{OPTIONS_MARKER}: takes keyword arguments only, got {mark.args!r}. "
                f"The form is: {OPTIONS_FORM}"
            )
        for name, value in mark.kwargs.items():
            merged.setdefault(name, check_option(name, value))
    return Options(**merged)


def check_option(name: str, value: object) -> Any:
    """The value of an option that a marker or a keyword argument gives, checked.

    Raises:
        MarkerError: with the right form.
    """
    if name not in MARKED:
        raise MarkerError(f"{OPTIONS_MARKER}: unknown option {name!r}. The form is: {OPTIONS_FORM}")
    kind = MARKED[name]
    try:
        return kind.check(value)
    except ValueError:
        raise MarkerError(
            f"{name}={value!r}: expected {kind.expected}. The form is: {OPTIONS_FORM}"
        ) from None
