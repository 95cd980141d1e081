"""Triton's interpreter, which runs kernels where there is no GPU, in three quarters of its time.

At each call of one function of a kernel by another it goes through all names of Triton's language
for those that it stands in for. They are the same ones each time.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any


@functools.cache
def _builtins_of(package: object) -> tuple[str, ...]:
    """The names that are to be stood in for, seen when the first kernel is launched."""
    from triton.language.core import is_builtin

    return tuple(name for name in dir(package) if is_builtin(getattr(package, name, None)))


def look_once() -> None:
    """Have the interpreter remember them; where it works in another way, it stays as it is."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_builtin") and hasattr(interpreter, "_patch_attr")):
        return

    def patch_builtin(package: object, *rest: Any) -> None:
        names = _builtins_of(package)
        if not is_builtin(getattr(package, names[0])):
            return  # within a kernel something stands in for all of them already
        for name in names:
            interpreter._patch_attr(package, name, getattr(package, name), *rest)

    interpreter._patch_builtin = patch_builtin
