"""A step of GitHub Actions: its summary, and where files are as seen from the repository."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_kernelprof.report.markdown import LIMIT, markdown_of
from pytest_kernelprof.system import Real

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_kernelprof.schema.run import Place, Run

SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1024 * 1024
"""GitHub drops the summary of a step that is larger."""
_LEAST_BYTES = 4096


def append_summary(run: Run, variables: Mapping[str, str]) -> str:
    """Append what a run says to the summary of this step.

    Returns:
        Why that was not done, in words; empty where it was.
    """
    path = variables.get(SUMMARY, "")
    if not path:
        return f"there is no step summary: {SUMMARY} is not set"
    try:
        there = os.path.getsize(path) if os.path.exists(path) else 0
        room = MOST_BYTES - there - len("\n\n")
        if room < _LEAST_BYTES:
            return f"the step summary is full: {there} of {MOST_BYTES} bytes"
        told = markdown_of(run, min(LIMIT, room))
        with Real.buffered(Real.file(path, "ab")) as file:
            file.write(("\n" + told if there else told).encode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return f"the step summary {path} cannot be written ({why})"
    return ""


def files_in_the_repository(root: str, variables: Mapping[str, str]) -> Callable[[Place], str]:
    """What gives the file of a place as seen from the root of the repository, with forward
    slashes; nothing for one that is not in it.

    Args:
        root: the folder that places are relative to.
    """
    top = os.path.realpath(variables.get("GITHUB_WORKSPACE") or _repository_of(root))

    def file_of(place: Place) -> str:
        try:
            found = os.path.relpath(os.path.realpath(os.path.join(root, place.file)), top)
        except (OSError, ValueError):  # a NUL; another drive
            return ""
        parts = found.split(os.sep)
        outside = parts[0] == os.pardir or "site-packages" in parts
        return "" if outside else "/".join(parts)

    return file_of


def _repository_of(folder: str) -> str:
    """The nearest folder from here up that is a repository; else this one."""
    here = os.path.realpath(folder)
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return folder
        here = above
    return here
