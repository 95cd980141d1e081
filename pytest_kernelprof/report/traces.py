"""Writes the profiles' traces into the folder of ``--kernelprof-trace-dir``."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_kernelprof.analysis.profile import Profile

_LONGEST = 150


def save_traces(folder: str, test: str, profiles: Iterable[Profile]) -> list[str]:
    """Write one gzip Chrome trace a profile, named after the test; hands back the paths.

    Each is written beside its place and moved there, so that a reader never sees half a file.
    """
    os.makedirs(folder, exist_ok=True)
    paths = []
    for i, profile in enumerate(profiles, 1):
        label = f"{i}-{profile.label}" if profile.label else str(i)
        path = os.path.join(folder, f"{_file_name(f'{test}-{label}')}.json.gz")
        beside = f"{path}.{os.getpid()}.gz"
        profile.save_trace(beside)
        os.replace(beside, path)
        paths.append(path)
    return paths


def _file_name(name: str) -> str:
    """The name in plain characters; where that loses any, a digest keeps names apart."""
    usual = name.replace("::", "-").replace("/", "-")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", usual).strip("-")[-_LONGEST:]
    if plain == usual:
        return plain
    return f"{plain}-{hashlib.sha1(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
