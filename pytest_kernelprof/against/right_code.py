"""In the process of the reference: whether the code that runs there is the revision's."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pytest_kernelprof.against.imports import loaded_from_the_user, pinned, redirect, refusal
from pytest_kernelprof.against.origins import Origins
from pytest_kernelprof.against.reads import Reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_kernelprof.against.copies import Copies
    from pytest_kernelprof.against.mapping import Mapping
    from pytest_kernelprof.schema.against import Launch
    from pytest_kernelprof.schema.run import Kernel, Test

_COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph ")


class RightCode:
    """What this process loads, from where, and what it reads.

    Attributes:
        origins: which of the revision's files a test comes from.
    """

    def __init__(self, launch: Launch, mapping: Mapping, copies: Copies) -> None:
        self._mapping = mapping
        self._copies = copies
        self._is_apart = bool(launch.python)
        self._is_own = mapping.tree == mapping.root  # a fresh process of today's code
        self._reads = Reads(mapping)
        self._tests = {os.path.join(launch.laid.tree, path) for path in launch.laid.tests}
        self._tree = launch.laid.tree
        stand_in = [copies.stand_in] if self._is_apart else []
        self.origins = Origins(launch.laid.tree, launch.laid.tests, *stand_in)

    def bring_in_reach(self, path: Sequence[str]) -> str:
        """Have packages come from the tree, or where another environment has the same ones from
        there; why that cannot be done, empty where it can.

        Args:
            path: the candidate's ``sys.path``; of another environment's only the user's folders.
        """
        whole = [*path, *sys.path] if self._is_apart else path
        if self._is_own:
            redirect(whole, self._mapping)
            return ""
        why = refusal(whole, sys.meta_path, self._mapping)
        if why:
            return why
        if self._is_apart:
            sys.meta_path.insert(0, pinned(self._copies.packages(), self._mapping))
        redirect(whole, self._mapping)
        self._reads.watch()
        return ""

    def wrong(self, modules: Iterable[tuple[str, object]]) -> str:
        """Why what is loaded is not the revision's code; empty where it is."""
        if self._is_own:
            return ""
        loaded = list(modules)
        users = loaded_from_the_user(loaded, self._mapping)
        if users:
            return (
                f"there, code of your own folder was loaded ({users[0]}), so it is not the "
                "revision's that would be measured: drop the absolute path that leads to it"
            )
        if self._is_apart:
            return self._copies.of_another_revision(loaded)
        return self._copies.of_today(loaded)

    def opened(self) -> tuple[str, ...]:
        """The files of the user's folder that were opened since this was asked last."""
        return self._reads.taken()

    def lines_of_today(self, test: Test | None) -> tuple[str, ...]:
        """Of profiles all of whose kernels are launched by lines of today's files, these files. Of
        installed packages and of compiled code no lines are known."""
        if test is None or self._is_apart:
            return ()
        found: set[str] = set()
        for profile in test.profiles:
            files = {_file_of(kernel) for kernel in profile.kernels}
            if files <= self._tests:
                found |= files
        return tuple(sorted(os.path.relpath(file, self._tree) for file in found))


def _file_of(kernel: Kernel) -> str:
    """The file of the line that launches a kernel; empty where it is not known."""
    if any(operator.startswith(_COMPILED) for operator in kernel.operators):
        return ""  # the line is that of the call
    return os.path.realpath(kernel.source.rpartition(":")[0]) if kernel.source else ""
