"""How pytest is called for the reference: as the user called it, in the tree, less what is not for
a second run: reports, coverage, workers, selections, debuggers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.against.git import local_variables, without

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
# What ties a process to the interpreter that it was started by.
_INTERPRETERS = frozenset({"PYTHONHOME", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})
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
    "json_report": False,
    "allure_report_dir": None,
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
    environment: Variables[str, str], mapping: Mapping, scratch: str, number: int, python: str = ""
) -> dict[str, str]:
    """The variables of the reference.

    Args:
        scratch: a folder for what it writes. number: of the worker that has it, from 0.
        python: as of ``of_the_tree``.
    """
    kept = of_the_tree(environment, mapping, python)
    kept["PYTEST_XDIST_WORKER"] = f"gw{_FIRST_WORKER + number}"
    kept["TORCH_EXTENSIONS_DIR"] = os.path.join(scratch, "extensions")  # built of the tree's code
    return kept


def of_the_tree(
    environment: Variables[str, str], mapping: Mapping, python: str = ""
) -> dict[str, str]:
    """The variables of what runs in the tree.

    Whatever asks git there finds no repository: neither that of a hook which runs the tests, nor
    one around the temporary folder.

    Args:
        python: another interpreter than this one, whose folder then comes first in the path.
    """
    kept = without(environment, frozenset(_DROPPED) | local_variables())
    for name in _MAPPED:
        if name in kept:
            kept[name] = mapping.text(kept[name])
    if python:
        kept = without(kept, _INTERPRETERS)
        kept["PATH"] = os.pathsep.join([os.path.dirname(python), kept.get("PATH", os.defpath)])
    kept["GIT_CEILING_DIRECTORIES"] = os.path.dirname(mapping.tree)
    return kept
