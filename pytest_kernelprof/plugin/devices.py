"""Which device a test is measured on, or why it runs unmeasured, is skipped or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_kernelprof.errors import NotJudged
from pytest_kernelprof.limits.marks import Marks, is_marked
from pytest_kernelprof.plugin.keys import SETTINGS
from pytest_kernelprof.plugin.marks import known_marks
from pytest_kernelprof.plugin.settings import options_of

if TYPE_CHECKING:
    from pytest_kernelprof.schema.recording import DeviceKind

CUDA_HINT = (
    "there is no CUDA device here; if the test needs one, mark it "
    '@pytest.mark.kernelprof(device="cuda"), or set the ini key kernelprof_device = cuda for all: '
    "then it is skipped without one"
)

_FIXTURE = "kernel_profile"
_DEVICE_FIXTURE = "kernelprof_device"
_DISABLED = "--kernelprof-disable: nothing is measured"


class Target(NamedTuple):
    """Where a test is measured.

    Attributes:
        device: what its code runs on.
        unmeasured: why it runs without being measured, a few words and a colon first; empty where
            it is measured.
    """

    device: DeviceKind
    unmeasured: str = ""


TARGET = pytest.StashKey[Target]()
"""Of a test, from its set-up on."""


def asks_for_us(item: pytest.Item) -> bool:
    """Whether a test asks for numbers, by the fixture or a marker."""
    return _FIXTURE in getattr(item, "fixturenames", ()) or is_marked(item)


def target_of(item: pytest.Item) -> Target:
    """Where a test is measured that asks for numbers, or has a snapshot; found once a try.

    Raises:
        NotJudged: it is marked for CUDA, and there is no device; or its limits are all of a GPU,
            and it is measured on the CPU.
        ProfilerUnavailable: a GPU is required, or CUDA is broken in this process.
    """
    if TARGET not in item.stash:
        item.stash[TARGET] = _target(item)
    return item.stash[TARGET]


def why_unmeasured(item: pytest.Item) -> str:
    """Why a test runs without being measured, as far as that is known."""
    return item.stash[TARGET].unmeasured if TARGET in item.stash else ""


def _target(item: pytest.Item) -> Target:
    settings, marks = item.config.stash[SETTINGS], known_marks(item)
    asked, asks = options_of(marks.options).device or settings.device, asks_for_us(item)
    is_for_cuda = asked == "cuda" and asks
    if settings.disable and not is_for_cuda:
        return Target("cpu", _DISABLED)
    if asked == "cpu":
        return Target(_on_cpu(marks))
    from pytest_kernelprof.device.inventory import has_no_device, why_no_gpu
    from pytest_kernelprof.errors import ProfilerUnavailable

    missing = why_no_gpu()
    if not missing:
        return Target("cpu", _DISABLED) if settings.disable else _on_gpu(item)
    if not asks:  # it has a snapshot, which is compared where it can be
        return Target("cpu", missing if asked == "cuda" else "")
    if settings.require_gpu:
        raise ProfilerUnavailable(f"--kernelprof-require-gpu: {missing}")
    if asked == "auto" and _DEVICE_FIXTURE in getattr(item, "fixturenames", ()):
        return Target(_on_cpu(marks))
    if has_no_device():
        if is_for_cuda:
            raise NotJudged(missing)
        return Target("cpu", missing)
    if not is_for_cuda:
        return Target("cuda")  # what measures says what is wrong with it
    if settings.blind == "error":
        raise ProfilerUnavailable(missing)
    raise NotJudged(missing)


def _on_gpu(item: pytest.Item) -> Target:
    from pytest_kernelprof.device.inventory import refuse_broken, why_broken

    if item.config.stash[SETTINGS].all and not asks_for_us(item):
        return Target("cpu" if why_broken() else "cuda")  # what it does without is its own affair
    refuse_broken()
    return Target("cuda")


def device_to_look_at(item: pytest.Item) -> DeviceKind:
    """The device of a test that asks for none: unlike ``target_of`` it leaves CUDA alone."""
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
