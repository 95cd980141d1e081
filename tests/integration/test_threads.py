"""Threads that profile at once: one does, the others are refused, and the test says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

AT_ONCE = """
import threading
import pytest_kernelprof

def one():
    return x @ x

def at_once(*calls):
    '''Begin all, each in a thread; what each raised.'''
    ready, raised = threading.Barrier(len(calls)), {}
    def go(name, call):
        ready.wait()
        try:
            call()
        except IncompleteProfile as error:
            raised[name] = str(error)
    threads = [
        threading.Thread(target=go, args=(name, call), name=name)
        for name, call in zip(["first", "second", "third"], calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised

class Inside:
    '''Begins when somebody is inside of its profile, which ends when this has.'''
    def __init__(self):
        self.entered, self.left = threading.Event(), threading.Event()
    def __call__(self):
        self.entered.set()
        self.left.wait(20)
        return one()
    def then(self, call):
        def go():
            self.entered.wait(20)
            try:
                call()
            finally:
                self.left.set()
        return go
"""

REFUSED = """
@pytest.mark.max_kernels(3)
def test_calls(kernel_profile):
    inside = Inside()
    raised = at_once(lambda: kernel_profile(inside), inside.then(lambda: kernel_profile(three)))
    assert [found.kernel_count for found in kernel_profile.profiles] == [1]
    print("REFUSED", raised)

def test_calls_without_a_limit(kernel_profile):
    inside = Inside()
    at_once(lambda: kernel_profile(inside), inside.then(lambda: kernel_profile(three)))

def test_regions(kernel_profile):
    inside = Inside()
    def region(name, call):
        with kernel_profile.region(name):
            call()
    at_once(lambda: region("a", inside), inside.then(lambda: region("b", three)))

def test_comparison(kernel_profile):
    inside = Inside()
    compare = kernel_profile.compare
    at_once(lambda: compare(inside, one), inside.then(lambda: compare(three, one)))

def test_call_beside_a_comparison(kernel_profile):
    inside = Inside()
    at_once(lambda: kernel_profile.compare(inside, one), inside.then(lambda: kernel_profile(three)))

@pytest.mark.max_kernels(4)
def test_call_in_a_thread_of_a_whole_call():
    raised = at_once(lambda: pytest_kernelprof.profile(three))
    print("REFUSED", raised)

late = Inside()

def test_thread_that_goes_on(kernel_profile):
    def go():
        with pytest.raises(IncompleteProfile, match="the test of kernel_profile at .* has ended"):
            kernel_profile(late)
        print("REFUSED late")
    kernel_profile(three)
    late.thread = threading.Thread(target=go, name="late")
    late.thread.start()
    late.entered.wait(20)

@pytest.mark.max_kernels(3)
def test_next(kernel_profile):
    late.left.set()
    late.thread.join()
    kernel_profile(three)

def test_thread_whose_callable_raises(kernel_profile):
    def broken():
        raise ValueError
    def go():
        with pytest.raises(ValueError):
            kernel_profile(broken)
    kernel_profile(three)
    at_once(go)

@pytest.mark.max_kernels(3)
def test_one_thread_after_the_other(kernel_profile):
    for call in (one, three):
        at_once(lambda: kernel_profile(call))
    assert [found.kernel_count for found in kernel_profile.profiles] == [1, 3]
"""
TOLD = """
REFUSED {'second': "kernel_profile at test_it.py:* is being profiled in thread 'first', and a process has one profiler: profile one at a time, *join that thread*
REFUSED {'first': "the whole call of test_it.py::test_call_in_a_thread_of_a_whole_call is being profiled in thread 'MainThread', *
REFUSED late
ERROR *test_calls - max_kernels was not judged: kernel_profile at test_it.py:* was not measured in thread 'second': kernel_profile at test_it.py:* is being profiled in thread 'first', *
ERROR *test_calls_without_a_limit - kernel_profile at test_it.py:* was not measured in thread 'second': kernel_profile at *
ERROR *test_regions - region 'b' at test_it.py:* was not measured in thread 'second': region 'a' at test_it.py:* is being profiled in thread 'first', *
ERROR *test_comparison - the comparison was not judged: the comparison at test_it.py:* was not measured in thread 'second': the comparison at test_it.py:* is being profiled in thread 'first', *
ERROR *test_call_beside_a_comparison - kernel_profile at test_it.py:* was not measured in thread 'second': the comparison at *
ERROR *test_thread_that_goes_on - kernel_profile at test_it.py:* is still being measured in thread 'late': join that thread before the test ends
ERROR *test_thread_whose_callable_raises - kernel_profile at test_it.py:* was not measured completely (ValueError was raised in thread 'first'); catch *
""".strip().splitlines()  # noqa: E501


def test_the_second_is_refused_at_once_and_the_test_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    result = run(AT_ONCE + REFUSED, "-rEP")
    result.assert_outcomes(passed=3, errors=7)
    for line in TOLD:
        result.stdout.fnmatch_lines([line.replace("[", "[[]")])


def test_whoever_comes_first_is_right_under_load(run: Run) -> None:
    result = run(
        AT_ONCE
        + """
@pytest.mark.parametrize("number", range(25))
def test_race(number, kernel_profile):
    calls = {"first": one, "second": three, "third": lambda: one() + 1}
    right = {"first": 1, "second": 3, "third": 2}
    refused = at_once(*(lambda call=call: kernel_profile(call) for call in calls.values()))
    assert all(found.integrity.complete for found in kernel_profile.profiles)
    counts = [found.kernel_count for found in kernel_profile.profiles]
    assert sorted(counts) == sorted(right[name] for name in calls.keys() - refused.keys())
    assert counts
"""
    )
    outcomes = result.parseoutcomes()
    assert outcomes.pop("errors", 0) > 0
    assert not outcomes.keys() - {"passed"}  # took turns, by chance
    result.stdout.no_fnmatch_line("*another profiler*")
