"""The Python of an environment where the revision is installed: looked at before it is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any

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
            f"{given!r} is no program: give the python of an environment where the revision is "
            "installed, as .venv-main/bin/python"
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
        raise NotUsableError(f"{given} says nothing in {_PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise NotUsableError(f"{given} cannot be run ({error.strerror or error})") from None
    try:
        about: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise NotUsableError(
            f"{given} does not run as a Python (status {done.returncode}: {lines[-1][:_SHOWN]})"
        ) from None
    return about
