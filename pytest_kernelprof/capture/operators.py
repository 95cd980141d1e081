"""Asks the dispatcher what kind each operator is, so that readers of a trace need no torch."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

# Operators that compute nothing: allocation, metadata, and what only moves a scalar to the host.
_NO_COMPUTE = frozenset(
    {
        "aten::_empty_affine_quantized",
        "aten::_has_compatible_shallow_copy_type",
        "aten::_local_scalar_dense",
        "aten::_nested_tensor_size",
        "aten::_reshape_alias",
        "aten::_unsafe_view",
        "aten::_version",
        "aten::detach",
        "aten::detach_",
        "aten::empty",
        "aten::empty_like",
        "aten::empty_permuted",
        "aten::empty_quantized",
        "aten::empty_strided",
        "aten::is_nonzero",
        "aten::is_pinned",
        "aten::item",
        "aten::lift_fresh",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::record_stream",
        "aten::requires_grad_",
        "aten::resize_",
        "aten::resize_as_",
        "aten::resolve_conj",
        "aten::resolve_neg",
        "aten::set_",
        "aten::set_data",
        "aten::size",
        "aten::storage_offset",
        "aten::stride",
        "aten::sym_numel",
        "aten::sym_size",
        "aten::sym_stride",
    }
)


def compute_operators(names: Iterable[str]) -> list[str]:
    """Those of the given operator names that compute: neither composite, nor a view, nor
    allocation or metadata. Names that the dispatcher does not know are wrappers (autograd nodes,
    annotations), but for the kernels of Inductor's C++ back end."""
    return sorted(name for name in set(names) if _computes(name))


@functools.cache
def _computes(name: str) -> bool:
    if "::" not in name:
        return "_cpp_fused" in name or name.startswith(("cpp_fused", "extern_kernel"))
    if name in _NO_COMPUTE:
        return False
    computing = [overload for overload in _overloads(name) if not _is_composite(name, overload)]
    # Composite by-ways of an operator that computes (``std(unbiased)``) end in it all the same.
    return any(not _is_view(name, overload) for overload in computing)


def _overloads(name: str) -> list[str]:
    """The operator's overloads, ``.out`` forms left out; empty where nobody knows it."""
    torch = load_torch()
    try:
        _, overloads = torch._C._jit_get_operation(name)
    except RuntimeError:
        return []
    return [
        overload
        for overload in overloads or ()
        if not overload.endswith("out") and _is_dispatched(name, overload)
    ]


def _is_dispatched(name: str, overload: str) -> bool:
    """TorchScript knows overloads on plain Python numbers that the dispatcher does not."""
    try:
        load_torch()._C._dispatch_find_schema_or_throw(name, overload)
    except RuntimeError:
        return False
    return True


def _is_composite(name: str, overload: str) -> bool:
    torch = load_torch()
    full = f"{name}.{overload}" if overload else name
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # Where a backend has a kernel of its own, the composite one is not used (silu_backward).
    return bool(has_kernel(full, "CompositeImplicitAutograd") and not has_kernel(full, "CPU"))


def _is_view(name: str, overload: str) -> bool:
    schema: Any = load_torch()._C._get_schema(name, overload)
    returns = list(schema.returns)
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )


def compiled_kernels_hidden() -> bool:
    """Whether Inductor may have compiled C++ kernels that no trace shows.

    They are operators of a trace only if ``config.cpp.enable_kernel_profile`` was on when they
    were compiled, and a compiled graph does not tell. The environment variable that the plugin
    sets turns it on; a process in which it is off all the same is not believed.
    """
    config = sys.modules.get("torch._inductor.config")
    return config is not None and not config.cpp.enable_kernel_profile
