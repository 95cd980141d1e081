"""How often torch.compile has compiled."""

from __future__ import annotations

import sys

import pytest
import torch

from pytest_kernelprof.capture.compilations import compilations


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compilations_are_counted(fullgraph: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x * 3 - 1, backend="eager", fullgraph=fullgraph)
    before = compilations()
    compiled(torch.ones(2))
    assert compilations() == before + 1
    compiled(torch.ones(2))
    assert compilations() == before + 1


def test_where_nothing_was_compiled_the_compiler_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert compilations() == 0
    assert "torch._dynamo.utils" not in sys.modules
