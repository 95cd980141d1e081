"""New specialisations of Triton's functions, compiled for a GPU that is not here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_kernelprof.profiler.compiled_code import compilations

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit  # type: ignore[untyped-decorator]
def scale(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class H100:
    """As much of a driver as it takes to compile."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    driver = triton.runtime.driver
    before = driver._active
    driver.set_active(H100())
    scale.device_caches.clear()
    yield
    driver._active = before
    scale.device_caches.clear()


def compile_for(n: int, dtype: Any = torch.float32, block: int = 64, **options: Any) -> None:
    scale.warmup(dtype, n, BLOCK=block, grid=(1,), **options)


def during(call: Callable[[], object]) -> tuple[str, ...] | None:
    before = compilations()
    call()
    return compilations().since(before).jit_compiled


def test_the_first_is_one_and_the_same_again_is_none() -> None:
    assert during(lambda: compile_for(1024)) == ("scale[its first specialisation]",)
    assert during(lambda: compile_for(1024)) == ()
    assert during(lambda: compile_for(2048)) == ()


@pytest.mark.parametrize(
    ("call", "by"),
    [
        (lambda: compile_for(1023), "n = i32, was i32 divisible by 16"),
        (lambda: compile_for(1), "n = 1, was i32 divisible by 16"),
        (lambda: compile_for(1024, block=128), "BLOCK = 128, was 64"),
        (lambda: compile_for(1024, num_warps=8), "num_warps = 8, was 4"),
        (
            lambda: compile_for(2**40, torch.float16),
            "x = *fp16 divisible by 16, was *fp32 divisible by 16 "
            "and n = i64 divisible by 16, was i32 divisible by 16",
        ),
    ],
)
def test_what_differs_is_named(call: Callable[[], None], by: str) -> None:
    compile_for(1024)
    assert during(call) == (f"scale[{by}]",)


def test_it_is_compared_with_the_nearest_that_exists() -> None:
    compile_for(1024)
    compile_for(1023, block=128)
    assert during(lambda: compile_for(1024, block=128)) == ("scale[BLOCK = 128, was 64]",)


def test_one_that_is_read_from_the_disk_counts() -> None:
    compile_for(1024)
    scale.device_caches.clear()  # as in a new process
    assert during(lambda: compile_for(1024)) == ("scale[its first specialisation]",)


def test_hooks_of_others_are_called_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    runtime = triton.knobs.runtime

    def hook(**kwargs: Any) -> bool:
        called.append(kwargs["fn"].name)
        return False

    monkeypatch.setattr(runtime, "jit_post_compile_hook", hook)
    assert during(lambda: compile_for(1024)) == ("scale[its first specialisation]",)
    assert called == ["scale"]
    assert runtime.jit_post_compile_hook is hook


def test_what_a_hook_refuses_to_compile_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **_: True)
    assert during(lambda: compile_for(1024)) == ()


def test_code_that_does_not_compile_raises_as_ever() -> None:
    with pytest.raises(Exception, match="arange"):
        compile_for(1024, block=63)


def test_a_triton_that_was_patched_unseen_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def patch() -> None:
        monkeypatch.setattr(triton.runtime.jit.JITFunction, "_do_compile", lambda *_: None)

    assert during(patch) is None
    monkeypatch.undo()
    assert during(lambda: None) == ()


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_interpreted_functions_are_unknown(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", value)
    assert during(lambda: None) is None


def test_functions_interpreted_by_a_knob_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    assert during(lambda: None) is None


LATE = """
import sys
from pytest_kernelprof.profiler.compiled_code import compilations
before = compilations()
assert "triton" not in sys.modules and "torch" not in sys.modules
{unseen}
import triton.runtime.jit
found = compilations().since(before).jit_compiled
assert found == {found}, found
"""


@pytest.mark.parametrize(
    ("unseen", "found"), [("", ()), ("sys.meta_path[:] = sys.meta_path[1:]", None)]
)
def test_triton_is_watched_from_when_it_is_loaded(
    tmp_path: Path, unseen: str, found: object
) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE.format(unseen=unseen, found=found))
    subprocess.run([sys.executable, str(script)], check=True)
