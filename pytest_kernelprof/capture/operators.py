"""Asks the dispatcher what kind each operator is, so that the trace reader need not import torch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.devices import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

# Operators that compute nothing: allocation, metadata and what only moves a scalar to the host.
_NO_COMPUTE = frozenset(
    "aten::" + name
    for name in ["empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "new_empty", "new_empty_strided", "_empty_affine_quantized", "detach", "detach_", "resize_", "resize_as_", "set_", "resolve_conj", "resolve_neg", "_unsafe_view", "_local_scalar_dense", "item", "is_nonzero", "lift_fresh", "_reshape_alias", "set_data", "record_stream", "requires_grad_", "_version", "is_pinned", "storage_offset", "stride", "size", "sym_size", "sym_stride", "sym_numel", "_nested_tensor_size", "_has_compatible_shallow_copy_type"]
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
    overloads = _overloads(name)
    if not overloads:
        return False
    return not all(_is_composite(name, overload) for overload in overloads) and not _is_view(
        name, overloads[0]
    )


def _overloads(name: str) -> list[str]:
    """The operator's overloads, the default one first, ``.out`` forms left out."""
    torch = load_torch()
    try:
        _, overloads = torch._C._jit_get_operation(name)
    except RuntimeError:
        return []
    functional = [
        overload
        for overload in overloads or ()
        if not overload.endswith("out") and _is_dispatched(name, overload)
    ]
    # The default overload decides; named ones (``Dimname``, ...) are often composite by-ways.
    return [""] if "" in functional else sorted(functional)


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
    return bool(has_kernel(full, "CompositeImplicitAutograd"))


def _is_view(name: str, overload: str) -> bool:
    schema: Any = load_torch()._C._get_schema(name, overload)
    returns = list(schema.returns)
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )
