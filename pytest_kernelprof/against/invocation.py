"""How pytest is called for the reference: as the user called it, in the tree, less what is not for
a second run: reports, coverage, workers, selections, debuggers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping as Variables

    import pytest

    from pytest_kernelprof.against.mapping import Mapping

# Variables of those who run tests or measure coverage, which this run's are not.
_DROPPED = (
    *("COV_CORE_SOURCE", "COV_CORE_CONFIG", "COV_CORE_DATAFILE", "COV_CORE_CONTEXT"),
    *("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PYTEST_CURRENT_TEST"),
    *("PYTEST_XDIST_WORKER_COUNT", "PYTHONSTARTUP"),
)
_MAPPED = ("PYTEST_ADDOPTS", "PWD")
# A worker's name, by which fixtures tell ports, databases and files apart: none that xdist gives.
_FIRST_WORKER = 90

# What options are, once pytest and its plugins have read them, where they have not been given.
RESET: dict[str, object] = {
    # of selection: the candidate has selected
    **dict.fromkeys(("keyword", "markexpr"), ""),
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "stepwise", "collectonly"), False),
    **dict.fromkeys(("deselect", "ignore", "ignore_glob")),
    "stepwise_skip": False,
    "continue_on_collection_errors": True,
    # of debugging and time limits
    **dict.fromkeys(("usepdb", "trace"), False),
    **dict.fromkeys(("maxfail", "timeout", "session_timeout", "reruns"), 0),
    # of reports
    **dict.fromkeys(("xmlpath", "htmlpath", "report_log", "pastebin")),
    **dict.fromkeys(("benchmark_json", "benchmark_save", "benchmark_compare")),
    **dict.fromkeys(("benchmark_autosave", "benchmark_compare_fail"), False),
    "log_file": os.devnull,
    # of workers
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "looponfail": False,
}


def arguments_for(config: pytest.Config, mapping: Mapping) -> tuple[str, ...]:
    """The arguments of the reference, but for its folders."""
    given = [mapping.text(os.fspath(argument)) for argument in config.invocation_params.args]
    added = [f"--rootdir={mapping.path(str(config.rootpath))}"]
    if config.inipath is not None:
        added.append(f"--config-file={mapping.path(str(config.inipath))}")
    if config.pluginmanager.hasplugin("_cov") or config.pluginmanager.hasplugin("pytest_cov"):
        added.append("--no-cov")
    return (*added, *given)


def environment_for(
    environment: Variables[str, str], mapping: Mapping, scratch: str, number: int
) -> dict[str, str]:
    """The variables of the reference.

    Args:
        scratch: a folder for what it writes. number: of the worker that has it, from 0.
    """
    kept = {name: value for name, value in environment.items() if name not in _DROPPED}
    for name in _MAPPED:
        if name in kept:
            kept[name] = mapping.text(kept[name])
    kept["PYTEST_XDIST_WORKER"] = f"gw{_FIRST_WORKER + number}"
    kept["TORCH_EXTENSIONS_DIR"] = os.path.join(scratch, "extensions")  # built of the tree's code
    return kept
