"""Source lines of a profile's kernels, copies and waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.measure.taking import read
from pytest_kernelprof.trace.correlation import source_lines

if TYPE_CHECKING:
    from pytest_kernelprof.analysis.profile import Profile, What
    from pytest_kernelprof.device.inventory import Device
    from pytest_kernelprof.measure.taking import Prepare


def with_lines_of_another_run(profile: Profile, device: Device, prepare: Prepare) -> Profile:
    """Profile the call once more, its source lines annotated, and carry the lines over.

    Where that run launched other kernels than the profile, their lines would be guesses: they
    stay unknown. Likewise copies and waits.
    """
    from pytest_kernelprof.capture.attribution import annotate_lines
    from pytest_kernelprof.capture.session import Session

    session = Session(device, stacks=False)
    call = prepare()
    with session, session.round(), annotate_lines():
        call()
    traced = read(device, session.recording(), profile.label, {"recompiles": 0})
    of_operator = source_lines(traced.trace, traced.links)
    lines: dict[tuple[What, int], str] = {}
    comparisons: tuple[tuple[What, bool], ...] = (
        ("kernel", [k.name for k in traced.kernels] == [k.name for k in profile.kernels]),
        ("copy", [c.name for c in traced.copies] == [c.name for c in profile.copies]),
        ("wait", [w.call for w in traced.waits] == [w.call for w in profile.waits]),
    )
    for what, same in comparisons:
        if same:
            for i, operator in enumerate(traced.operators_of(what)):
                if operator in of_operator:
                    lines[what, i] = of_operator[operator]
    return profile.with_lines(lines)


def frames_of_kernels(profile: Profile) -> dict[tuple[What, int], str]:
    """The innermost recorded Python frame around each kernel's operator (``--kernelprof-stacks``).

    The profiler names the line of the ``def``, not of the call.
    """
    frames, ops = profile.trace.frames, profile.trace.operators
    lines: dict[tuple[What, int], str] = {}
    for i, operator in enumerate(profile.operators_of("kernel")):
        if operator < 0:
            continue
        at, thread = ops.start[operator], ops.thread[operator]
        around = (frames.start <= at) & (frames.end >= at) & (frames.thread == thread)
        names = [str(name) for name in frames.name[around]]
        users = [n for n in names if ".py(" in n and "site-packages" not in n and "torch/" not in n]
        if users:
            file, _, rest = users[-1].partition("(")
            lines["kernel", i] = f"{file}:{rest.partition(')')[0]}"
    return lines
