"""The launch: addresses instead of tensors, the current stream and device, and profilers' hooks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from fused_mlp import launch
from fused_mlp.problem import Problem
from triton import knobs

X = torch.arange(4.0)


class Compiled:
    """Stands for a kernel that Triton compiled; notes how it is launched."""

    function, packed_metadata, metadata = "function", "packed", SimpleNamespace()

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def run(self, *arguments: Any) -> None:
        self.seen.append(arguments)

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.seen.append(("usual", grid, *arguments))


class Kernel:
    """Stands for a kernel of Triton's."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def warmup(self, *arguments: Any, **options: Any) -> Compiled:
        self.compiled.append(Compiled())
        return self.compiled[-1]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The GPU as the launcher sees it: the current device, and its current stream."""
    now = {"device": 0, "stream": 11}
    monkeypatch.setattr(launch, "INTERPRET", False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: now["device"], raising=False)
    monkeypatch.setattr(
        torch._C,
        "_cuda_getCurrentRawStream",
        lambda device: now["stream"] + 100 * device,
        raising=False,
    )
    return now


def test_tensors_are_launched_by_their_addresses_on_the_current_stream(
    gpu: dict[str, int],
) -> None:
    kernel = Kernel()
    launcher = launch.Launcher(kernel)
    for gpu["stream"] in (11, 12):
        launcher("key", 7, (X, None, 3), ("relu",), {})
    (compiled,) = kernel.compiled
    assert compiled.seen == [
        (7, 1, 1, stream, "function", "packed", None, None, None, X.data_ptr(), None, 3, "relu")
        for stream in (11, 12)
    ]


def test_each_device_and_key_has_a_kernel_of_its_own(gpu: dict[str, int]) -> None:
    """A kernel is loaded into one device's context."""
    kernel = Kernel()
    launcher = launch.Launcher(kernel)
    for gpu["device"] in (0, 1, 0):
        for key in ("one", "two"):
            launcher(key, 7, (X,), (), {})
    assert [len(compiled.seen) for compiled in kernel.compiled] == [2, 2, 1, 1]
    assert {seen[3] for seen in kernel.compiled[2].seen} == {111}


def test_an_address_is_asked_for_at_each_call(gpu: dict[str, int]) -> None:
    """Storage may have been freed and used again; nothing remembers it."""
    kernel = Kernel()
    launcher = launch.Launcher(kernel)
    views = [X, X[2:], X.clone()]
    for view in views:
        launcher("key", 7, (view,), (), {})
    assert [seen[9] for seen in kernel.compiled[0].seen] == [v.data_ptr() for v in views]


@pytest.mark.parametrize("which", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profilers_hook_gets_the_usual_launch(
    gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    kernel = Kernel()
    launcher = launch.Launcher(kernel)
    launcher("key", 7, (X,), (), {})
    monkeypatch.setattr(getattr(knobs.runtime, which), "calls", [print])
    launcher("key", 7, (X,), ("relu",), {})
    assert kernel.compiled[0].seen[1] == ("usual", (7, 1, 1), X, "relu")


def test_numbers_of_rows_that_are_alike_to_triton_share_a_kernel() -> None:
    """A model that sees ever new lengths must not ask Triton each time."""
    p = Problem(4099, 64, 64, 64, False, "relu", torch.bfloat16, (9, 0))

    def kind(**changes: Any) -> object:
        problem = p._replace(**changes)
        return launch.kind_of(problem, problem.rows)

    assert kind() is kind(rows=8191)
    assert kind(rows=4096) is kind(rows=16)
    others = ({"rows": 16}, {"rows": 1}, {"width": 72}, {"dtype": torch.float16}, {"keep": True})
    assert len({kind(), *(kind(**changes) for changes in others)}) == 6


def test_what_is_kept_is_bounded(gpu: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_VARIANTS", 3)
    kernel = Kernel()
    launcher = launch.Launcher(kernel)
    for key in range(10):
        launcher(key, 7, (X,), (), {})
        assert len(launcher._launches) <= 3
    assert [len(compiled.seen) for compiled in kernel.compiled] == [1] * 10
