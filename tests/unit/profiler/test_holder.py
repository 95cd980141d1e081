"""Who holds the profiler, as whoever is refused it is told."""

from __future__ import annotations

import threading

import pytest
import torch

from pytest_kernelprof.api import profile
from pytest_kernelprof.errors import IncompleteProfile
from pytest_kernelprof.profiler.session import refuse_to_nest
from pytest_kernelprof.profiler.torch_profiler import end_left_open, held_by


def test_one_alone_measures_and_the_next_is_told_who_it_is() -> None:
    with held_by("region 'a'"):
        with pytest.raises(IncompleteProfile, match=r"^region 'a' is being profiled, and"):
            held_by("region 'b'").__enter__()
        refuse_to_nest()
    with held_by("region 'b'"):
        refuse_to_nest()


def test_one_that_gives_way_is_in_nobodys_way() -> None:
    with held_by("the whole call", gives_way=True), held_by("region 'a'"):
        refuse_to_nest()
        with pytest.raises(IncompleteProfile, match=r"^region 'a' is being profiled, and"):
            held_by("region 'b'").__enter__()


def test_it_is_let_go_whatever_is_raised() -> None:
    with pytest.raises(KeyError), held_by("region 'a'"):
        raise KeyError
    with held_by("region 'b'"):
        refuse_to_nest()


def test_who_never_lets_go_is_in_the_way_of_its_own_test_alone() -> None:
    left = held_by("region 'left'")
    left.__enter__()
    end_left_open()  # as each test ends
    refuse_to_nest()
    with held_by("region 'a'"):
        left.__exit__(None, None, None)  # when nobody holds it any more
        refuse_to_nest()


def test_a_profiler_of_other_code_is_told_by_its_thread() -> None:
    refused = []

    def ask() -> None:
        with pytest.raises(IncompleteProfile) as error:
            refuse_to_nest()
        refused.append(str(error.value))

    with torch.profiler.profile():
        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    here, there = refused
    assert "started in this thread by other code than pytest-kernelprof" in here
    assert "started in another thread by other code" in there


def test_without_pytest_it_is_told_too() -> None:
    with pytest.raises(
        IncompleteProfile,
        match=r"^pytest_kernelprof\.profile is being profiled, and torch\.profiler cannot nest: ",
    ):
        profile(lambda: profile(lambda: torch.ones(2) + 1, device="cpu"), device="cpu")
