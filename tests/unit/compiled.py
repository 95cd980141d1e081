"""Code that Inductor compiles. Tests share it: what is compiled once is in Inductor's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def fused() -> Callable[[torch.Tensor], torch.Tensor]:
    """A compiled function of one kernel."""
    torch.compiler.reset()
    return torch.compile(lambda x: (x * 2).relu() + 1)  # type: ignore[no-any-return]


@contextmanager
def hidden() -> Iterator[Callable[[], object]]:
    """A compiled call whose kernels no trace shows: each of its profiles is incomplete."""
    torch.compiler.reset()
    compiled, x = torch.compile(lambda x: (x @ x).relu() + 5), torch.ones(4, 4)
    with torch._inductor.config.patch({"cpp.enable_kernel_profile": False}):
        yield lambda: compiled(x)
