"""Tensor maps: what Triton would hand a launch, encoded once, and nothing that can be fooled.

A stand-in encodes: its map is all that it was given. On a GPU see `test_fused_kernels`.
"""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from fused_mlp import launch, tensor_maps
from fused_mlp.tensor_maps import Encoding, Tiles
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver

META = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [8, 64], "fp4_padded": False}
WIDER = {**META, "block_size": [16, 64]}
SIGNATURE = {
    "x": "tensordesc<bf16[8, 64],NVMMAShared>",
    "rows": "i32",
    "w": "tensordesc<bf16[16, 64],NVMMAShared>",
    "bias": "*bf16",
    "WIDTH": "constexpr",
}


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """How often each map was encoded; nothing is known yet."""
    made: Counter[Any] = Counter()

    def encode(address: int, *rest: Any) -> tuple[Any, ...]:
        given = (address, *(tuple(r) if isinstance(r, list) else r for r in rest))
        made[given] += 1
        return given

    utils = SimpleNamespace(fill_tma_descriptor=encode, fill_tma_descriptor_tiled=encode)
    monkeypatch.setattr(driver, "_active", SimpleNamespace(utils=utils))
    monkeypatch.setattr(tensor_maps, "_known", {})
    return made


def tiles(tensor: torch.Tensor, height: int = 8) -> Tiles:
    return Tiles(tensor, *tensor.shape, height, 64)


def map_of(tensor: torch.Tensor, device: int = 0, meta: dict[str, Any] = META) -> tuple[Any, ...]:
    """Address, and (rows, columns), (stride, 1) and the block that were encoded."""
    (encoding,) = launch._encodings(SimpleNamespace(tensordesc_meta=[meta]))
    found, *sizes = tensor_maps.pieces(device, tiles(tensor), encoding)
    assert sizes == [*tensor.shape, tensor.shape[1], 1]
    return found[0], found[5], found[6], found[4]


def truth(tensor: torch.Tensor, block: tuple[int, int] = (8, 64)) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), (tensor.shape[1], 1), block


def numbers(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


def test_a_matrix_is_encoded_once(encoded: Counter[Any]) -> None:
    x = numbers(32, 64)
    for same in (x, x[:], x.detach(), x.view(32, 64)):
        assert map_of(same) == truth(x)
    assert list(encoded.values()) == [1]


def test_all_that_a_map_says_is_told_apart() -> None:
    """Address, both sizes, the block; and the device, though addresses are unique among them."""
    x = numbers(64, 64)
    cases = (x, x[8:], x[:32], x.view(32, 128), x.view(128, 32), x.view(-1)[64:].view(63, 64))
    for _ in range(2):
        for case in cases:
            assert map_of(case) == truth(case)
            assert map_of(case, meta=WIDER) == truth(case, (16, 64))
            assert map_of(case, device=1) == truth(case)
    assert len(tensor_maps._known) == 3 * len(cases)


def test_storage_that_was_freed_and_used_again() -> None:
    """One piece of memory, as an allocator hands it out again and again."""
    memory = torch.zeros(1 << 16, dtype=torch.bfloat16)
    for rows, columns in ((64, 64), (128, 32), (64, 64), (8, 512), (128, 32)):
        tensor = memory[: rows * columns].view(rows, columns)
        assert map_of(tensor) == truth(tensor)


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_maps, "MOST", 10)
    x = numbers(256, 64)
    for _ in range(2):
        for first in range(0, 200, 8):
            assert map_of(x[first:]) == truth(x[first:])
            assert len(tensor_maps._known) <= 10


def test_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_maps, "MOST", 10)
    x = numbers(256, 64)
    wrong: list[object] = []

    def calls(begin: int) -> None:
        for i in range(300):
            view = x[8 * ((begin + i) % 25) :]
            if map_of(view) != truth(view):
                wrong.append(view)

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("wrong", ["strided", "odd"])
def test_what_tma_cannot_read_is_refused(wrong: str) -> None:
    x = numbers(64, 64)
    tensor = x.t() if wrong == "strided" else x.view(-1)[1:65].view(1, 64)
    with pytest.raises(ValueError, match="contiguous tensors that begin at a multiple of 16 bytes"):
        map_of(tensor)


def test_a_launch_is_handed_what_triton_itself_hands_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launcher turns each descriptor into a map, sizes and strides; so do we, from the table,
    and the launcher that we have it make is for the signature that this gives."""
    got: list[Any] = []
    theirs = nvidia.wrap_handle_tensordesc(
        lambda *given: got.append(given), SIGNATURE, [META, WIDER]
    )
    signatures: list[Any] = []

    def launcher_of(source: Any, metadata: Any) -> Any:
        signatures.append((source.signature, metadata.tensordesc_meta))
        return lambda *given: got.append(given)

    monkeypatch.setattr(driver._active, "launcher_cls", launcher_of, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    monkeypatch.setattr(launch, "hooked", lambda: False)

    class Compiled:
        function, packed_metadata, run = "function", "packed", None
        src = SimpleNamespace(signature=SIGNATURE)
        metadata = Metadata([META, WIDER])

        def __getitem__(self, grid: object) -> None:
            """The usual launch, which is not taken here."""

    x, w, bias = numbers(32, 64), numbers(64, 128), numbers(1, 64)
    run = launch.straight(Compiled(), 5, 0)
    run((tiles(x), 32, tiles(w, 16), bias), (128,))
    ours = got.pop()
    assert ours[:9] == (5, 1, 1, 7, "function", "packed", None, None, None)

    arguments = (tiles(x).descriptor(), 32, tiles(w, 16).descriptor(), bias.data_ptr(), 128)
    if hasattr(nvidia, "expand_signature"):  # Triton 3.7 and later
        theirs(arguments)
        assert list(ours[9:]) == got.pop()[-1]
        expanded = nvidia.expand_signature(SIGNATURE.values(), [META, WIDER])
        assert signatures == [(dict(enumerate(expanded)), None)]
    else:
        base = (None,) * nvidia._BASE_ARGS_FORMAT_LEN
        theirs(*base, *arguments)
        assert ours[9:] == got.pop()[len(base) :]
        ((signature, meta),) = signatures
        code = nvidia.make_launcher({}, SIGNATURE, [META, WIDER])
        assert nvidia.make_launcher({}, signature, meta) == code


class Metadata:
    """A named tuple, as a compiled kernel has it."""

    def __init__(self, meta: list[dict[str, Any]] | None) -> None:
        self.tensordesc_meta = meta

    def _replace(self, tensordesc_meta: None) -> Metadata:
        return Metadata(tensordesc_meta)


def test_where_triton_is_made_otherwise_its_own_launch_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Any] = []

    class Compiled:
        function = packed_metadata = run = None
        metadata = SimpleNamespace(tensordesc_meta=[{**META, "something_new": 1}])

        def __getitem__(self, grid: object) -> Any:
            return lambda *given: taken.append(given)

    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    x = numbers(32, 64)
    launch.straight(Compiled(), 5, 0)((tiles(x), 32), ("relu",))
    ((descriptor, *rest),) = taken
    assert descriptor.base is x
    assert rest == [32, "relu"]


def test_an_encoding_is_all_that_triton_says() -> None:
    (encoding,) = launch._encodings(SimpleNamespace(tensordesc_meta=[META]))
    assert encoding == Encoding(3, 2, 10, (8, 64), False)
