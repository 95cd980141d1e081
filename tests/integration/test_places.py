"""Which line a failure names: the test's own that made the call, and what is known of kernels."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

HELPER = """
import pytest
def measured(kernel_profile, fn): return kernel_profile(fn)
@pytest.fixture
def profiled(kernel_profile): return lambda fn: kernel_profile(fn)
@pytest.fixture
def by_fixture(kernel_profile):
    return kernel_profile(lambda: None)
"""
CALLS = """
import contextlib, functools, threading, helper
from concurrent.futures import ThreadPoolExecutor
pytestmark = pytest.mark.expect_kernels("never")
linear = torch.nn.Linear(8, 8)
def checked(kernel_profile, fn): kernel_profile(fn)
def wrapped(test):
    @functools.wraps(test)
    def run(*args, **kwargs): return test(*args, **kwargs)
    return run
def test_plain(kernel_profile):
    kernel_profile(three)  # here
def test_several_lines(kernel_profile):
    kernel_profile(  # here
        three
    )
def test_helper_of_another_file(kernel_profile):
    helper.measured(kernel_profile, three)  # here
def test_helper_of_this_file(kernel_profile):
    three()
    checked(kernel_profile, three)  # here
def test_fixture_of_a_conftest(profiled):
    profiled(three)  # here
@wrapped
@torch.no_grad()
def test_decorated(kernel_profile):
    kernel_profile(three)  # here
def test_through_a_library(kernel_profile):
    torch.no_grad()(kernel_profile)(three)  # here
def test_region(kernel_profile):
    with contextlib.ExitStack() as stack:
        stack.enter_context(kernel_profile.region("r"))  # here
        three()
def test_promise(kernel_profile):
    kernel_profile.limit(expect_kernels=(...,))
    kernel_profile.compare(three, three).min_speedup(1000)  # here
class TestIt:
    @pytest.mark.parametrize("n", [1])
    def test_method(self, kernel_profile, n):
        kernel_profile(three)  # here
def test_in_a_thread(kernel_profile):
    thread = threading.Thread(target=lambda: kernel_profile(three))  # here
    thread.start(), thread.join()
def test_in_a_thread_of_a_library(kernel_profile):  # here
    ThreadPoolExecutor(1).submit(kernel_profile, three).result()
def test_whole():  # here
    three()
def test_by_fixture(by_fixture): pass  # not here: conftest.py:7
"""


def test_the_line_of_the_test_that_made_the_call_is_named(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(HELPER)
    pytester.makepyfile(helper=HELPER)
    result = run(CALLS, "-v")  # each in full
    written = (pytester.path / "test_it.py").read_text().splitlines()
    here = [f"test_it.py:{i}" for i, line in enumerate(written, 1) if line.endswith("# here")]
    pairs = zip(result.outlines, result.outlines[1:], strict=False)
    named = [(line, code) for line, code in pairs if re.match(r"  (measured )?at ", line)]
    named = [one for one in named if "F.gelu(" not in one[1]]  # which launches the kernels
    places = [line.partition("at ")[2].partition(": ")[0] for line, _ in named]
    assert places == [*here, "conftest.py:7"]


def test_kernels_without_a_line_of_their_own_have_that_of_the_call(run: Run) -> None:
    result = run(
        """
pytestmark = pytest.mark.max_kernels(0)
linear = torch.nn.Linear(8, 8)
def test_module(kernel_profile):
    kernel_profile(linear, x)
def test_region(kernel_profile):
    with kernel_profile.region("r"):
        three()
def test_whole():
    x + 1
def test_backward(kernel_profile):
    kernel_profile(lambda: linear(x).sum().backward())
"""
    )
    rows = [line.removeprefix(">").strip() for line in result.outlines if " aten::" in line]
    lines = [re.split(r" {2,}", row) for row in rows]
    places = [(line[2].split()[0], line[3]) for line in lines if len(line) > 3]
    assert [where for name, where in places if name == "aten::addmm"] == [
        "in test_it.py:10",
        "test_it.py:17",
    ]
    assert ("aten::gelu", "in test_it.py:12") in places
    assert [where for name, where in places if name == "aten::add"][-1] == "in test_it.py:14"
    result.stdout.no_fnmatch_line("*line unknown*")
