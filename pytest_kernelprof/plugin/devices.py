"""Which device a test is measured on, or why it is skipped or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import NotJudged
from pytest_kernelprof.limits.marks import Marks, is_marked
from pytest_kernelprof.plugin.keys import SETTINGS
from pytest_kernelprof.plugin.marks import known_marks
from pytest_kernelprof.plugin.settings import options_of

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.schema.recording import DeviceKind

_FIXTURE = "kernel_profile"
_DEVICE_FIXTURE = "kernelprof_device"


def asks_for_us(item: pytest.Item) -> bool:
    """Whether a test asks for numbers, by the fixture or a marker."""
    return _FIXTURE in getattr(item, "fixturenames", ()) or is_marked(item)


def device_of(item: pytest.Item) -> DeviceKind | None:
    """The device of a test that asks for numbers, or has a snapshot and is then checked where it
    can be; None where it cannot."""
    if asks_for_us(item):
        return resolve_device(item)
    from pytest_kernelprof.device.health import refuse_broken
    from pytest_kernelprof.device.inventory import usual_kind

    asked = item.config.stash[SETTINGS].device
    if asked == "cpu":
        return "cpu"
    found = usual_kind()
    if found == "cuda":
        refuse_broken()
    return None if asked == "cuda" and found == "cpu" else found


def resolve_device(item: pytest.Item) -> DeviceKind:
    """The device of a test; skips (or fails, if a GPU is required) where there is none for it."""
    from pytest_kernelprof.device.health import refuse_broken, why_broken
    from pytest_kernelprof.device.inventory import why_no_gpu
    from pytest_kernelprof.errors import ProfilerUnavailable

    settings, marks = item.config.stash[SETTINGS], known_marks(item)
    asked = options_of(marks.options).device or settings.device
    if asked == "cpu":
        return _on_cpu(marks)
    reason = why_no_gpu()
    if not reason:
        if settings.all and not asks_for_us(item):  # what it does without CUDA is its own affair
            return "cpu" if why_broken() else "cuda"
        refuse_broken()
        return "cuda"
    if settings.require_gpu:
        raise ProfilerUnavailable(f"--kernelprof-require-gpu: {reason}")
    if asked == "auto" and _DEVICE_FIXTURE in getattr(item, "fixturenames", ()):
        return _on_cpu(marks)
    hint = "the test profiles a GPU"
    if marks.limits or asked == "cuda":
        hint = "run with --kernelprof-device=cpu to count compute operators instead"
    told = not marks.limits or asked == "auto"
    raise NotJudged(f"{reason}; {hint}" if told else reason)


def device_to_look_at(item: pytest.Item) -> DeviceKind:
    """The device of a test that asks for none: unlike ``resolve_device`` it leaves CUDA alone."""
    from pytest_kernelprof.device.inventory import usual_kind, usual_kind_untouched

    asked = options_of(known_marks(item).options).device or item.config.stash[SETTINGS].device
    if asked == "cpu":
        return "cpu"
    try:
        return usual_kind() if asked == "cuda" else usual_kind_untouched()
    except Exception:  # a fixture has put something in place of torch's functions
        return "cuda"  # and what is wrong there is told in the test's row


def _on_cpu(marks: Marks) -> DeviceKind:
    if marks.limits and not any(limit.on_cpu for limit in marks.limits):
        names = ", ".join(limit.name for limit in marks.limits)
        raise NotJudged(f"not applicable on the CPU: {names}")
    return "cpu"
