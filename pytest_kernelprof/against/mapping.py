"""Paths of the user's folder as paths of the tree that stands in its place: pure text and links."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Mapping:
    """From the user's root folder to the tree.

    Attributes:
        root, tree: absolute, without links.
        stays: folders below the root that both sides use: environments, this plugin.
    """

    root: str
    tree: str
    stays: tuple[str, ...] = ()

    def path(self, path: str) -> str:
        """Where a path leads in the tree; itself where it is none of the root's, or stays."""
        for seen in (os.path.abspath(path), os.path.realpath(path)):
            if self._is_mapped(seen):
                return os.path.normpath(os.path.join(self.tree, os.path.relpath(seen, self.root)))
        return path

    def is_users(self, path: str) -> bool:
        """Whether it is below the root and does not stay."""
        return self._is_mapped(os.path.abspath(path)) or self._is_mapped(os.path.realpath(path))

    def text(self, text: str) -> str:
        """Words of a command line or a variable, with each path of the root in the tree's place."""
        before, after = r"(?:(?<=[=:,\s'\"])|^)", r"(?=[/:,;\s'\"]|$)"
        return re.sub(
            before + re.escape(self.root) + after + r"[^:,;\s'\"]*",
            lambda found: self.path(found[0]),
            text,
        )

    def _is_mapped(self, path: str) -> bool:
        stays = (stay for stay in self.stays if stay != self.root and is_below(stay, self.root))
        return is_below(path, self.root) and not any(is_below(path, stay) for stay in stays)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def roots_in_front(path: Iterable[str], mapping: Mapping) -> list[str]:
    """A ``sys.path`` whose entries of the root are the tree's, and stand first, in their order."""
    entries = [(entry, mapping.path(entry) if entry else entry) for entry in path]
    moved = [there for here, there in entries if there != here]
    stayed = [there for here, there in entries if there == here]
    return list(dict.fromkeys([*moved, *stayed]))
