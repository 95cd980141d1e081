"""In the process of the reference: which files of the user's own folder it opens all the same."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_kernelprof.against.mapping import Mapping

_EVENTS = ("open", "ctypes.dlopen")
_MOST = 20
"""So many are known by name between two questions."""


class Reads:
    """Watches each file that this process opens, and each library that it loads by ``ctypes``, from
    ``watch`` on. A hook of Python's audit stays as long as its process."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._root = mapping.root.rstrip(os.sep) + os.sep
        self._root_bytes = os.fsencode(self._root)
        self._seen: dict[str, None] = {}

    def watch(self) -> None:
        """Begin."""
        sys.addaudithook(self._look)

    def taken(self) -> tuple[str, ...]:
        """The files since it was asked last, relative to the user's folder."""
        found, self._seen = tuple(self._seen), {}
        return found

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _EVENTS:
            return
        path = arguments[0]
        # Of nearly all files this is all that is done.
        if isinstance(path, str):
            if not path.startswith(self._root):
                return
        elif not isinstance(path, bytes) or not path.startswith(self._root_bytes):
            return
        self._note(os.fsdecode(path))

    def _note(self, path: str) -> None:
        if len(self._seen) < _MOST and self._mapping.is_users(path):
            self._seen[os.path.relpath(path, self._mapping.root)] = None
