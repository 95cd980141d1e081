"""Matrix products as libraries name them: library, tile and layout are said, scheduling is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TILE = re.compile(r"(\d+)x(\d+)(?:x(\d+))?")
_STAGES = re.compile(r"(\d+)x\d+")
_LAYOUT = re.compile(r"[tnc]{2}", re.IGNORECASE)
_TYPE = re.compile(r"(?:bf16|fp16|f16|tf32|f32|f64|fp8|e4m3|e5m2|s8|u8|i8)+")
# splitK and what is fused to the product change the work.
_KEPT = re.compile(r"splitK\w*|d?(?:relu|gelu|silu)(?:bias)?|bias|bgrad\w*", re.IGNORECASE)
_OPERATION = re.compile(r"([a-z]?)(\d*)(gemm|fprop|dgrad|wgrad)")


def nvjet(name: str) -> str | None:
    """``nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT`` is ``nvjet 256x128x64 TNT``."""
    tokens = name.split("_")
    if tokens[0] != "nvjet":
        return None
    layout = tokens[-1] if re.fullmatch(r"[TNC]{2,4}", tokens[-1]) else ""
    return _said("nvjet", [], _tile(tokens[1:]), layout, tokens)


def nvjet_type(name: str) -> str:
    """The letters that nvjet has for its types, such as ``tst``; empty for another name."""
    tokens = name.split("_")
    if tokens[0] != "nvjet":
        return ""
    return next((one for one in tokens[1:] if re.fullmatch(r"[a-z]{3,8}", one)), "")


def cublas(name: str) -> str | None:
    """``volta_sgemm_128x32_nt`` is ``sgemm 128x32 NT``; so are those of an ``xmma``."""
    tokens = name.split("_")
    if "xmma" in tokens[:2] and "gemm" in tokens:
        sizes = [one.removeprefix("tilesize") for one in tokens if one.startswith("tilesize")]
        return _said("xmma gemm", _types(tokens), _tile(sizes), _layout(tokens), tokens)
    for token in tokens[1:4]:
        operation = _OPERATION.fullmatch(token)
        if operation and _tile(tokens):
            stem = "gemm" if operation[1] == "s" and operation[2] else token
            return _said(stem, _types(tokens), _tile(tokens), _layout(tokens), tokens)
    return None


def cutlass(name: str) -> str | None:
    """``cutlass_80_tensorop_s16816gemm_bf16_64x64_64x6_tn_align8`` is
    ``cutlass gemm bf16 64x64x64 TN``."""
    tokens = name.split("_")
    if tokens[0] != "cutlass":
        return None
    for token in tokens[1:6]:
        operation = _OPERATION.fullmatch(token)
        if operation:
            plain = operation[1] == "s" and operation[2]
            stem = operation[3] if plain else operation[1] + operation[3]
            return _said(f"cutlass {stem}", _types(tokens), _tile(tokens), _layout(tokens), tokens)
    return None


def small_cublas(name: str) -> str | None:
    """``gemmSN_TN_kernel_64addr`` is ``gemmSN TN``."""
    found = re.match(r"(gemm[A-Za-z0-9]{1,8})_([TNC]{2})_kernel", name)
    return f"{found[1]} {found[2]}" if found else None


_TENSILE_LAYOUT = {
    ("Alik", "Bljk"): "TN",
    ("Ailk", "Bljk"): "NN",
    ("Ailk", "Bjlk"): "NT",
    ("Alik", "Bjlk"): "TT",
}
_TENSILE_TYPE = {"B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "complex64"}


def tensile(name: str) -> str | None:
    """``Cijk_Alik_Bljk_BBS_..._MT32x32x256_...`` is ``Tensile 32x32x256 TN bf16``."""
    tokens = name.split("_")
    if tokens[0] != "Cijk" or len(tokens) < 4:
        return None
    layout = _TENSILE_LAYOUT.get((tokens[1], tokens[2]), "")
    tile = next((one[2:] for one in tokens if re.fullmatch(r"MT\d+x\d+x\d+", one)), "")
    code = tokens[3]
    known = _TENSILE_TYPE.get(code[:1], "") if code.isalpha() else ""
    return " ".join(filter(None, ["Tensile", tile, layout, known or code]))


def _said(stem: str, types: Iterable[str], tile: str, layout: str, tokens: Sequence[str]) -> str:
    kept = dict.fromkeys(token for token in tokens if _KEPT.fullmatch(token))
    return " ".join(filter(None, [stem, *types, tile, layout, *kept]))


def _types(tokens: Sequence[str]) -> list[str]:
    return [next((one for one in tokens if _TYPE.fullmatch(one)), "")]


def _layout(tokens: Sequence[str]) -> str:
    found = [one for one in tokens if _LAYOUT.fullmatch(one)]
    return found[-1].upper() if found else next((one for one in tokens if one == "nhwc"), "")


def _tile(tokens: Sequence[str]) -> str:
    """The first size, M by N, and the step of k: a third number, that of the stages, or none."""
    at = next((i for i, one in enumerate(tokens) if _TILE.fullmatch(one)), None)
    if at is None:
        return ""
    if tokens[at].count("x") == 2:
        return tokens[at]
    steps = [_STAGES.fullmatch(one) for one in tokens[at + 1 :]]
    step = next((one[1] for one in steps if one), "")
    return f"{tokens[at]}x{step}" if step else tokens[at]
