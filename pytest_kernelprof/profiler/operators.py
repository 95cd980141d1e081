"""Asks the dispatcher what kind each operator is, so that readers of a trace need no torch."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from pytest_kernelprof.gpu.inventory import load_torch

# Operators that compute nothing, and of which neither schema nor tags say so: allocation, views
# without an alias annotation, metadata, and what only moves a scalar to the host.
_IDLE = """
    _assert_scalar _assert_tensor_metadata _coalesced_ _dimI _dimV _efficientzerotensor
    _empty_affine_quantized _empty_per_channel_affine_quantized _functional_assert_scalar
    _functional_sym_constrain_range _functional_sym_constrain_range_for_size _fused_sdp_choice
    _has_compatible_shallow_copy_type _has_same_storage_numel _lazy_clone _local_scalar_dense
    _make_dep_token _nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen
    _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx _nested_tensor_size
    _nested_tensor_storage_offsets _nested_tensor_strides _nnz _print _reshape_alias _resize_output
    _resize_output_ _sparse_compressed_tensor_with_dims _sparse_coo_tensor_with_dims
    _sparse_coo_tensor_with_dims_and_tensors _unsafe_view _use_cudnn_ctc_loss _use_miopen_ctc_loss
    _version dense_dim detach detach_ empty empty_like empty_permuted empty_quantized empty_strided
    is_coalesced is_nonzero is_pinned is_same_size is_set_to item lift lift_fresh new_empty
    new_empty_strided q_per_channel_axis q_scale q_zero_point qscheme record_stream rename rename_
    requires_grad_ resize_ resize_as_ resize_as_sparse_ resolve_conj resolve_neg set set_ set_data
    size sparse_compressed_tensor sparse_coo_tensor sparse_dim sparse_resize_
    sparse_resize_and_clear_ storage_offset stride sym_constrain_range sym_constrain_range_for_size
    sym_numel sym_size sym_stride unsafe_split unsafe_split_with_sizes
"""
_NAME = re.compile(r"\w+::\w+")
# Where torch's own operators are. Those that decompose are known to run others, or to ask for
# metadata.
_TORCHS = {"aten", "inductor", "mkldnn", "quantized", "sparse", "_test"}
_FUNCTION = (
    "an autograd.Function is named {}, so its calls cannot be distinguished from the operator's: "
    "rename it"
)
_GONE = (
    "the operator {} is no longer registered as it was, so it is unknown whether it computed: "
    "keep its library until the test has ended"
)
_UNLIKE = (
    "of the operator {} some overloads compute and others do not, and the trace does not say "
    "which ran: give each its own name"
)
_SHIM = "aoti_torch_cpu_"
_NO_COMPUTE = frozenset(f"aten::{name}" for name in _IDLE.split())


def compute_operators(names: Iterable[str], compiled: Container[str] = ()) -> list[str]:
    """Those of the given operator names that compute: neither composite, nor a view, nor
    allocation or metadata.

    Args:
        compiled: what the kernels of compiled code are called. Other names that the dispatcher
            does not know are wrappers (autograd nodes, ranges).
    """
    known = (one for one in set(names) if "::" in one or one in compiled)
    return sorted(one for one in known if (_computes(one) if "::" in one else _shim_computes(one)))


def decomposing_operators(names: Iterable[str]) -> list[str]:
    """Those of the given operator names that a library implements for all devices at once: out of
    other operators, or by code of its own."""
    return sorted(name for name in set(names) if _of_library(name) == {"decomposes"})


def bare_operators(names: Iterable[str]) -> list[str]:
    """Those of the given operator names that may be called without arguments."""
    return sorted(name for name in set(names) if any(one.bare for one in _overloads(name)))


def unclear(names: Iterable[str], bare: Container[str], given: Iterable[set[str]]) -> list[str]:
    """What cannot be told of the given operator names, in words.

    Args:
        bare: those that had no inputs, as ranges of user code have none. A namespace of operators
            tells them apart.
        given: the kernels that libraries gave meanwhile, and may have taken back.
    """
    taken = set[str]().union(*given) - load_torch().library._impls
    back = {"::".join(one.partition(".")[0].split("/")[:2]) for one in taken}
    named, spaces = sorted(filter(_NAME.fullmatch, names)), vars(load_torch().ops)
    asked = [name for name in named if name not in bare or name.partition("::")[0] in spaces]
    return [
        *map(_FUNCTION.format, functions_called(set(filter(_computes, named)))),
        *(_UNLIKE.format(name) for name in named if len(_of_library(name)) > 1),
        *(_GONE.format(name) for name in asked if name in back or not _is_known(name)),
    ]


def registered_operators() -> set[str]:
    """Names of all operators that the dispatcher knows in this process, without overloads."""
    return {name.partition(".")[0] for name in load_torch()._C._dispatch_get_all_op_names()}


def functions_called(names: Container[str]) -> list[str]:
    """Those of the given operator names that an ``autograd.Function`` has as well: its events have
    inputs like those of operators."""
    found: set[str] = set()
    left: list[Any] = [load_torch().autograd.Function]
    while left:
        kind = left.pop()
        left.extend(kind.__subclasses__())
        if "::" in kind.__name__ and kind.__name__ in names:
            found.add(kind.__name__)
    return sorted(found)


def _shim_computes(name: str) -> bool:
    """Of operators that C++ wrappers call past the dispatcher (``aoti_torch_cpu_mm_out``)."""
    if not name.startswith(_SHIM):
        return True
    operator = "aten::" + name.removeprefix(_SHIM).removesuffix("_out")
    return _computes(operator) or not _overloads(operator)


def _of_library(name: str) -> set[str]:
    """What the overloads of an operator are that does not come with torch."""
    if name.partition("::")[0] in _TORCHS:
        return set()
    return {
        "view" if one.view else "decomposes" if one.decomposes else "computes"
        for one in _overloads(name)
    }


def _is_known(name: str) -> bool:
    """Whether it is an operator, also of TorchScript, or an ``autograd.Function`` or its
    backward."""
    known = _overloads(name) or load_torch()._C._jit_get_schemas_for_operator(name)
    return bool(known or functions_called((name, name.removesuffix("Backward"))))


class _Overload(NamedTuple):
    """What the dispatcher says of an overload.

    Attributes:
        name: with that of its operator. composite: implemented for all devices by other operators.
        view: changes or returns metadata alone. bare: takes no arguments.
    """

    name: str
    composite: bool
    view: bool
    bare: bool

    @property
    def decomposes(self) -> bool:
        """Where a backend has a kernel of its own, the composite one is not used (silu_backward,
        and what a test has put in its place)."""
        return self.composite and not _has_kernel(self.name, "CPU")


# Those that come with torch, from its file of schemas, stay as they are; those of a library may be
# others in the next test.
_torchs_own: dict[str, tuple[_Overload, ...]] = {}


def _computes(name: str) -> bool:
    # Composite by-ways of an operator that computes (``std(unbiased)``) end in it all the same.
    return name not in _NO_COMPUTE and any(
        not one.view and not one.decomposes for one in _overloads(name)
    )


def _overloads(name: str) -> tuple[_Overload, ...]:
    """The operator's overloads, of torch's operators without ``.out`` forms; empty where nobody
    knows it."""
    if name in _torchs_own or not _NAME.fullmatch(name):
        return _torchs_own.get(name, ())
    torch, is_torchs = load_torch(), name.startswith("aten::")
    try:
        _, found = torch._C._jit_get_operation(name)
    except RuntimeError:
        return ()
    kept = (one for one in found or () if not (is_torchs and one.endswith("out")))
    overloads = tuple(_overload(name, one) for one in kept if _is_dispatched(name, one))
    origins = [torch._C._dispatch_dump(one.name) for one in overloads if is_torchs]
    if origins and all("RegisterSchema.cpp" in one for one in origins):
        _torchs_own[name] = overloads
    return overloads


def _overload(name: str, overload: str) -> _Overload:
    full = f"{name}.{overload}" if overload else name
    bare = not load_torch()._C._get_schema(name, overload).arguments
    composite = _has_kernel(full, "CompositeImplicitAutograd")
    return _Overload(full, composite, _is_view(name, overload), bare)


def _has_kernel(name: str, key: str) -> bool:
    return bool(load_torch()._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _is_dispatched(name: str, overload: str) -> bool:
    """TorchScript knows overloads on plain Python numbers that the dispatcher does not."""
    try:
        load_torch()._C._dispatch_find_schema_or_throw(name, overload)
    except RuntimeError:
        return False
    return True


def _is_view(name: str, overload: str) -> bool:
    """Of a view in place (``unsqueeze_``) the schema is that of ``relu_``: its tag tells."""
    torch = load_torch()
    if torch.Tag.inplace_view in torch._C._get_operation_overload(name, overload)[2]:
        return True
    returns = list(torch._C._get_schema(name, overload).returns)
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )
