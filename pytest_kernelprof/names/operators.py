"""Which operators a kernel of Inductor fuses, of the name that Inductor gives it."""

from __future__ import annotations

import re

_FUSED = re.compile(r"(?:graph_\d+_)?(triton_[a-z]+_fused|cpp_fused)(?:_(\w*))?")
_MOST = 4

# Inductor joins the operators' names with the sign that is in many of them. Those that it fuses and
# that hold it, without the ones that begin with it.
_LONG = """
    add_rms_norm adaptive_avg_pool2d adaptive_max_pool2d all_gather_into_tensor all_reduce
    avg_pool2d avg_pool2d_backward avg_pool3d batch_norm bitwise_and bitwise_not bitwise_or
    bitwise_xor clamp_max clamp_min constant_pad_nd cross_entropy embedding_dense_backward
    floor_divide gelu_backward grid_sampler_2d group_norm hardsigmoid_backward hardswish_backward
    hardtanh_backward index_add index_put index_put_ index_select instance_norm layer_norm
    leaky_relu leaky_relu_backward linalg_vector_norm log_sigmoid_forward logical_and logical_not
    logical_or logical_xor masked_fill masked_scatter max_pool2d max_pool2d_with_indices
    max_pool2d_with_indices_backward mse_loss mse_loss_backward native_batch_norm
    native_batch_norm_backward native_dropout native_dropout_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty new_full
    new_ones new_zeros nll_loss nll_loss_backward nll_loss_forward ones_like pow_backward
    reduce_scatter_tensor reflection_pad1d reflection_pad2d repeat_interleave replication_pad2d
    rms_norm scalar_tensor scaled_dot_product_attention scatter_add scatter_reduce select_backward
    select_scatter sigmoid_backward silu_backward slice_backward slice_scatter smooth_l1_loss
    soft_margin_loss softmax_backward_data split_with_sizes tanh_backward threshold_backward
    unsafe_index upsample_bilinear2d upsample_nearest2d var_mean wait_tensor zeros_like
    adaptive_avg_pool2d_backward log_softmax log_softmax_backward_data fft_c2c fft_c2r fft_r2c
    moe_forward rotary_embedding native_batch_norm_legit native_batch_norm_legit_functional
    native_batch_norm_legit_no_training scaled_dot_product_efficient_attention
    scaled_dot_product_flash_attention scaled_dot_product_cudnn_attention
"""
# Those that begin with the sign: where two signs meet, one of these begins.
_HIDDEN = """
    _to_copy _unsafe_view _unsafe_index _unsafe_index_put _softmax _log_softmax
    _softmax_backward_data _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm
    _fused_rms_norm_backward _foreach_add _foreach_mul _foreach_copy _low_memory_max_pool_offsets
    _low_memory_max_pool_with_offsets _reshape_alias _assert_async _embedding_bag _int_mm
    _scaled_mm _weight_norm_interface _weight_norm _cdist_forward
"""
_KNOWN = frozenset(_LONG.split()) | frozenset(_HIDDEN.split())
_MOST_WORDS = max(name.count("_") for name in _KNOWN) + 1


def inductor_words(name: str) -> str | None:
    """``triton_poi_fused [gelu, mul]``; None for what Inductor did not name. Its number, which
    counts the kernels of a graph, and that of the graph go."""
    found = _FUSED.fullmatch(name)
    if found is None:
        return None
    unnumbered = (found[2] or "").rstrip("0123456789")
    operators = _split(unnumbered.removesuffix("_") if unnumbered != found[2] else unnumbered)
    if not operators:
        return found[1]
    more = [f"+{len(operators) - _MOST}"] if len(operators) > _MOST else []
    return f"{found[1]} [{', '.join(operators[:_MOST] + more)}]"


def _split(joined: str) -> list[str]:
    """The longest known operator wherever one begins, else what stands to the next sign."""
    words = joined.split("_")
    found: list[str] = []
    at = 0
    while at < len(words):
        span = next(
            (
                size
                for size in range(min(_MOST_WORDS, len(words) - at), 1, -1)
                if "_".join(words[at : at + size]) in _KNOWN
            ),
            2 if not words[at] and at + 1 < len(words) else 1,
        )
        one = "_".join(words[at : at + span])
        if one:
            found.append(one)
        elif found:
            found[-1] += "_"  # an operator that works in place, at the end
        at += span
    return found
