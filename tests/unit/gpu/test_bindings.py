"""torch's functions as they were before a test patched them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch

from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.gpu.inventory import as_made, bind, bind_if_loaded, bound_already, load_torch


def test_within_it_torch_finds_its_own_functions_and_outside_the_patches_stand() -> None:
    bind(torch)
    own = torch.cuda.is_available
    with mock.patch("torch.cuda.is_available", return_value=True) as patched:
        with as_made():
            assert torch.cuda.is_available is own
        assert torch.cuda.is_available is patched
    assert torch.cuda.is_available is own


def test_the_patches_stand_again_after_an_exception() -> None:
    bind(torch)
    with mock.patch("torch.cuda.synchronize") as patched:
        with pytest.raises(KeyError), as_made():
            raise KeyError("mine")
        assert torch.cuda.synchronize is patched


def test_the_state_of_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is called is put back, not what torch keeps in its modules."""
    bind(torch)
    monkeypatch.setattr(torch.autograd.profiler, "_is_profiler_enabled", True)
    with as_made():
        assert torch.autograd.profiler._is_profiler_enabled


def test_the_first_torch_stays_whatever_stands_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bind(torch)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert load_torch() is torch


@pytest.fixture
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_bound", [])
    monkeypatch.setattr(inventory, "_made", [])


@pytest.mark.usefixtures("unbound")
@pytest.mark.parametrize("stand_in", [None, ModuleType("torch"), mock.MagicMock(spec=["nn"])])
def test_what_is_no_torch_is_not_bound(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    bind_if_loaded()
    assert bound_already() is None


@pytest.mark.usefixtures("unbound")
def test_a_module_of_that_name_that_is_not_pytorch_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stranger = ModuleType("torch")
    stranger.__file__ = "/somewhere/torch.py"
    monkeypatch.setitem(sys.modules, "torch", stranger)
    with pytest.raises(inventory.ProfilerUnavailable, match=r"not PyTorch \('/somewhere/torch\.py"):
        load_torch()


@pytest.mark.usefixtures("unbound")
def test_torch_is_not_loaded_to_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    bind_if_loaded()
    assert "torch" not in sys.modules
