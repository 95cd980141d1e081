"""``allow``: waits, copies and kernels that code means, and that limits do not count.

A module of its own, though it is short: it stands in library code, so it loads nothing and, while
no round is recorded, does nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from pytest_kernelprof.system import Real
from pytest_kernelprof.units import printable

ALLOWED_KINDS = ("syncs", "copies", "kernels")
_LONGEST = 200

_recording: list[Callable[[str], AbstractContextManager[object]]] = []


@contextlib.contextmanager
def recorded_by(annotate: Callable[[str], AbstractContextManager[object]]) -> Iterator[None]:
    """Have the blocks of all threads annotated until this one ends: a round is recorded.

    Args:
        annotate: annotates a block by a text that ``allowed_by`` reads.
    """
    _recording.append(annotate)
    try:
        yield
    finally:
        _recording.remove(annotate)


def allowed_by(text: str) -> tuple[list[str], str]:
    """Return the kinds that an annotated block allows, and why: ``logging (logger.py:12)``."""
    from urllib.parse import unquote

    kinds, _, reason = text.partition("#")
    return kinds.split("+"), printable(unquote(reason))


class allow:  # noqa: N801 (used as a statement, as pytest.raises is)
    """Take waits, copies or kernels of a block out of the limits of tests.

    Limits do not count what the block's thread launches or waits for; failures show it apart. The
    metrics keep it, and so do snapshots and comparisons. Without a profile of a test, and in code
    that torch.compile compiles, the block has no effect. It may be nested, and used by threads.

    Args:
        kinds: what is allowed, of "syncs", "copies" and "kernels".
        why: the reason, which reports show.

    Raises:
        MarkerError: a kind is unknown or missing, or the reason is.
    """

    def __init__(self, *kinds: str, why: str = "") -> None:
        known = [isinstance(one, str) and one in ALLOWED_KINDS for one in kinds]
        if not known or not all(known) or not isinstance(why, str) or not why.strip():
            from pytest_kernelprof.errors import MarkerError  # loads pytest

            given = ", ".join([*map(repr, kinds), f"why={why!r}"])
            raise MarkerError(
                f"allow({given}): expected one or more of {', '.join(ALLOWED_KINDS)}, and a reason "
                'as why=. Write with pytest_kernelprof.allow("syncs", why="logging"):'
            )
        self._kinds, self._why = kinds, why
        self._open: dict[int, list[AbstractContextManager[object]]] = {}

    def __enter__(self) -> None:
        # First: torch.compile leaves out what follows, and guards nothing by it.
        if _is_compiled() or not _recording:
            return
        from urllib.parse import quote  # no text breaks the trace

        code, line = (caller := sys._getframe(1)).f_code, caller.f_lineno
        reason = f"{self._why[:_LONGEST]} ({os.path.basename(code.co_filename)}:{line})"
        text = f"{'+'.join(self._kinds)}#{quote(reason, ' ():', errors='replace')}"
        for annotate in _recording[-1:]:  # empty if the round has just ended
            self._open.setdefault(Real.this_thread(), []).append(annotation := annotate(text))
            annotation.__enter__()

    def __exit__(self, *error: object) -> None:
        if not _is_compiled() and (opened := self._open.get(Real.this_thread())):
            opened.pop().__exit__(None, None, None)


def _is_compiled() -> bool:
    """Whether torch.compile traces this call now."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()
