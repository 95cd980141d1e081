"""What a saved benchmark has to say of the GPU and the software that it was taken with."""

from __future__ import annotations

from pytest_kernelprof.device.inventory import current_device, why_no_gpu
from pytest_kernelprof.device.nvml import nvml_facts
from pytest_kernelprof.errors import ProfilerUnavailable


def describe_gpu() -> dict[str, str]:
    """The current GPU and its software as plain text: ``name``, ``capability``, ``driver``, and
    the versions of ``torch``, ``cuda`` and ``triton``, as far as they are there.

    Without a GPU there is ``missing`` instead of the first three, which says why. Nothing in it
    changes from run to run on an unchanged machine, so that saved runs compare equal.
    """
    try:
        reason = why_no_gpu()
        device = current_device("cpu" if reason else "cuda")
    except ProfilerUnavailable as error:  # no torch
        return {"missing": str(error)}
    # Of Python pytest-benchmark's own machine info tells.
    versions = {name: text for name, text in device.versions.items() if name != "python"}
    if reason:
        return {"missing": reason, **versions}
    found = {"name": device.name, "capability": device.capability}
    driver = nvml_facts().driver
    return {**found, **({"driver": driver} if driver else {}), **versions}
