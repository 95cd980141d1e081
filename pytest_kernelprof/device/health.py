"""Whether CUDA still works in this process, and which test broke it.

After a device-side assert or an illegal address nothing works on the GPU until the process ends:
whatever is asked of it then fails, in tests that did nothing wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.device.bindings import as_made, bound_already
from pytest_kernelprof.errors import ProfilerUnavailable

if TYPE_CHECKING:
    from pytest_kernelprof.device.bindings import Torch

_broken: list[str] = []


def look_after(who: str) -> None:
    """Note whether CUDA is broken, now that this test is through.

    Asks for the state of a stream, which does not wait for it: what a test leaves to go wrong later
    shows after a later one.
    """
    why = "" if _broken else _what_is_broken()
    if why:
        _broken.append(f"{who} broke CUDA in this process ({why})")


def why_broken() -> str:
    """Which test broke CUDA, and what to do; empty where it works."""
    if not _broken:
        return ""
    return (
        f"{_broken[0]}, and nothing works on the GPU until the process ends: fix that test, or "
        "run it in its own process"
    )


def refuse_broken() -> None:
    """Raise if CUDA is broken.

    Raises:
        ProfilerUnavailable: it names the test after which that was so.
    """
    if _broken:
        raise ProfilerUnavailable(why_broken())


def _what_is_broken() -> str:
    torch = bound_already()
    if torch is None or not torch.is_initialized():
        return ""
    # An error that does not last is gone the second time.
    return _answer_of_a_stream(torch) and _answer_of_a_stream(torch)


def _answer_of_a_stream(torch: Torch) -> str:
    """Its error, or nothing."""
    try:
        with as_made():
            if not torch.is_capturing():
                torch.default_stream().query()
    except RuntimeError as error:
        return str(error).strip().partition("\n")[0]
    return ""
