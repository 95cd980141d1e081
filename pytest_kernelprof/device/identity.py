"""The name that a GPU has in every process: its UUID, not its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from pytest_kernelprof.device.inventory import Device


def gpu_uuid(device: Device) -> str:
    """The UUID of a GPU as torch has it, without the prefix that NVML and
    ``CUDA_VISIBLE_DEVICES`` put before it ("GPU-", for a MIG instance "MIG-").

    An index would not do: ``CUDA_VISIBLE_DEVICES`` renumbers, and NVML counts by the PCI bus.

    Raises:
        ValueError: the device is no GPU.
    """
    if device.kind != "cuda":
        raise ValueError(f"a GPU has a UUID, got a device of kind {device.kind!r}")
    return str(load_torch().cuda.get_device_properties(device.index).uuid)
