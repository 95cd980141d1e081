"""How the reference is called: pytest as the user called it, in the tree, less what is not for a
second run (reports, coverage, workers, selections, debuggers); by the Python of an environment
where the revision is installed, which is looked at before it is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.against.revision import local_variables, without

if TYPE_CHECKING:
    from collections.abc import Mapping as Variables

    import pytest

    from pytest_kernelprof.against.import_redirect import Mapping

PLUGIN = "pytest-kernelprof"
_PATIENCE_S = 60.0
_SHOWN = 300
_PROBE = f"""
import json, sys
from importlib import metadata, util
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
names = {{"pytest": "pytest", "pytest_kernelprof": "{PLUGIN}"}}
found = {{dist: util.find_spec(name) and version(dist) for name, dist in names.items()}}
print(json.dumps({{"prefix": sys.prefix, "python": sys.version.split()[0], "found": found}}))
"""
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


class NotUsableError(Exception):
    """It cannot run the reference; the message says why and what to do."""


def interpreter_at(given: str, started_in: str) -> str:
    """The program to start; empty where it is that of this very environment.

    Args:
        given: a path, or the name of a program. started_in: what a path is relative to.

    Raises:
        NotUsableError: there is none, it does not run, or it lacks pytest or this plugin.
    """
    expanded = os.path.expanduser(given)
    named = os.sep not in expanded
    # A link is what an environment's python is known by: it is not followed.
    program = shutil.which(expanded) if named else os.path.join(started_in, expanded)
    if program is None or not os.path.isfile(program) or not os.access(program, os.X_OK):
        raise NotUsableError(
            f"{given!r} is not a program: give the python of an environment where the revision "
            "is installed, for example .venv-main/bin/python"
        )
    program = os.path.abspath(program)
    about = _asked(program, given)
    ours, found = _our_version(), about["found"]
    wanted = f"{given} -m pip install pytest {PLUGIN}" + (f"=={ours}" if ours else "")
    for name in ("pytest", PLUGIN):
        if not found[name]:
            raise NotUsableError(f"{given} has no {name}: {wanted}")
    if ours and found[PLUGIN] != ours:
        raise NotUsableError(
            f"{given} has {PLUGIN} {found[PLUGIN]}, and this run {ours}; both sides need one: "
            f"{wanted}"
        )
    same = os.path.realpath(about["prefix"]) == os.path.realpath(sys.prefix)
    return "" if same else program


def _our_version() -> str:
    """Empty where this package is in reach without having been installed."""
    try:
        return metadata.version(PLUGIN)
    except metadata.PackageNotFoundError:
        return ""


def _asked(program: str, given: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [program, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotUsableError(f"{given} gave no answer in {_PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise NotUsableError(f"{given} cannot be run ({error.strerror or error})") from None
    try:
        about: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it gave no answer"]
        raise NotUsableError(
            f"{given} does not run as a Python (status {done.returncode}: {lines[-1][:_SHOWN]})"
        ) from None
    return about
