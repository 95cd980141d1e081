"""What a test asked for, was raised in and caught: what it was to be judged by is not passed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

CAUGHT = """
import contextlib
def breaks(): raise ValueError("mine")
@pytest.mark.max_kernels(3)
@pytest.mark.max_kernels(0, match="softmax")
def test_call(kernel_profile):
    kernel_profile(three)
    with pytest.raises(ValueError): kernel_profile(breaks)
def test_limit_that_comes_later(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(ValueError): kernel_profile.run(three, setup=breaks)
    kernel_profile.limit(max_kernels=3)
@pytest.mark.max_kernels(3)
def test_option(kernel_profile):
    kernel_profile(three)
    with pytest.raises(MarkerError): kernel_profile.run(three, rounds="many")
@pytest.mark.max_kernels(3)
def test_no_callable(kernel_profile):
    kernel_profile(three)
    with pytest.raises(TypeError): kernel_profile(three())
@pytest.mark.max_kernels(3)
def test_generator(kernel_profile):
    kernel_profile(three)
    with pytest.raises(TypeError): kernel_profile(lambda: (three() for _ in range(9)))
@pytest.mark.max_kernels(3)
def test_refused(kernel_profile):
    kernel_profile(three)
    with torch.profiler.profile(), contextlib.suppress(IncompleteProfile): kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_thread(kernel_profile):
    import threading
    threading.excepthook = lambda raised: None
    kernel_profile(three)
    thread = threading.Thread(target=kernel_profile, args=[breaks])
    thread.start(), thread.join()
def test_region(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(ValueError), kernel_profile.region("r", max_kernels=0): breaks()
def test_comparison(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with contextlib.suppress(ValueError): kernel_profile.compare(breaks, three).min_speedup(1000)
def test_comparison_alone(kernel_profile, kernelprof_device):
    with contextlib.suppress(ValueError): kernel_profile.compare(breaks, three).min_speedup(1000)
def test_call_alone(kernel_profile, kernelprof_device):
    with pytest.raises(ValueError): kernel_profile(breaks)
@pytest.mark.min_speedup(0.00001, over=three)
def test_promise_that_was_held_of_another(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(ValueError): kernel_profile(breaks)
def test_limit_that_is_refused(kernel_profile, kernelprof_device):
    with pytest.raises(MarkerError): kernel_profile.limit(max_kernels="2")
    kernel_profile(three)
def test_limit_that_nobody_knows(kernel_profile, kernelprof_device):
    with pytest.raises(MarkerError): kernel_profile.limit(max_kernel=2)
    kernel_profile(three)
def test_region_whose_limit_is_refused(kernel_profile, kernelprof_device):
    with pytest.raises(MarkerError): kernel_profile.region("r", max_kernels=-1)
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_ranks_that_are_refused(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(MarkerError): kernel_profile.ranks("two").run(three)
@pytest.fixture
def at_the_end(kernel_profile):
    yield
    with pytest.raises(ValueError): kernel_profile(breaks)
@pytest.mark.max_kernels(3)
def test_teardown(kernel_profile, at_the_end):
    kernel_profile(three)
"""
NOT_JUDGED = """
ERROR test_it.py::test_call - max_kernels was not judged: kernel_profile at test_it.py:13 was not measured completely (ValueError was raised); catch expected exceptions inside the callable
ERROR *test_limit_that_comes_later - max_kernels was not judged: kernel_profile at test_it.py:16 *
ERROR *test_option - max_kernels was not judged: kernel_profile at test_it.py:21 *(MarkerError was raised)*
ERROR *test_no_callable - max_kernels was not judged: *(CannotMeasureError was raised)*
ERROR *test_generator - max_kernels was not judged: *(CannotMeasureError was raised)*
ERROR *test_refused - a torch profiler is already running*
ERROR *test_thread - max_kernels was not judged: *(ValueError was raised in thread 'Thread-*')*
ERROR *test_region - max_kernels was not judged: region 'r' at test_it.py:43 was not measured completely (ValueError was raised); enter it in a with statement, *
ERROR *test_comparison - the comparison was not judged: the comparison at test_it.py:46 was not measured completely (ValueError was raised)*
ERROR *test_comparison_alone - the test profiled nothing: the comparison at test_it.py:48 was *
ERROR *test_call_alone - the test profiled nothing: kernel_profile at test_it.py:50 was not measured *
ERROR *test_promise_that_was_held_of_another - min_speedup was not judged: kernel_profile at *
ERROR *test_limit_that_is_refused - max_kernels was not judged: it was refused at test_it.py:56: max_kernels: '2' is not a whole number*
ERROR *test_limit_that_nobody_knows - max_kernel was not judged: it was refused at test_it.py:59: *
ERROR *test_region_whose_limit_is_refused - max_kernels was not judged: it was refused at test_it.py:62: *
ERROR *test_ranks_that_are_refused - max_kernels was not judged: kernel_profile.ranks at test_it.py:67 *(MarkerError was raised)*
ERROR *test_teardown - max_kernels was not judged: kernel_profile at test_it.py:71 was *
""".strip().splitlines()  # noqa: E501


def test_what_was_not_measured_to_its_end_is_not_judged_which_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(CAUGHT, "-rE")
    # The last one is judged when its fixtures end.
    result.assert_outcomes(passed=1, errors=len(NOT_JUDGED))
    result.stdout.fnmatch_lines_random([line.replace("[", "[[]") for line in NOT_JUDGED])


LATE = """
kept = []
@pytest.fixture
def stricter(kernel_profile):
    yield
    kernel_profile.limit(max_kernels=2)
def test_a_stricter_at_last(kernel_profile, kernelprof_device, stricter):
    kernel_profile(three)
    kept.append(kernel_profile)
def test_b_by_that_of_another_test():
    kept[0](three)
@pytest.mark.xfail
def test_c_region_of_another_test():
    with kept[0].region("r", max_kernels=0): three()
@pytest.mark.xfail
def test_d_limit_of_another_test():
    kept[0].limit(max_kernels=0)
"""


def test_a_limit_is_judged_however_late_it_comes_and_none_of_a_test_that_has_ended(
    run: Run,
) -> None:
    result = run(LATE, "-rE")
    result.assert_outcomes(passed=1, errors=4)
    result.stdout.fnmatch_lines(
        [
            "ERROR *test_a_stricter_at_last - max_kernels: 3 > limit 2",
            "ERROR *test_b_* - this kernel_profile bel*",
        ]
    )


@pytest.mark.project(
    """
def breaks(): raise ValueError("mine")
def tolerant():
    with pytest.raises(ValueError): breaks()
    return three()
def test_nothing_is_limited(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(ValueError): kernel_profile(breaks)
@pytest.mark.max_kernels(3)
def test_caught_inside(kernel_profile):
    kernel_profile(tolerant)
@pytest.mark.max_kernels(3)
def test_skipped(kernel_profile):
    kernel_profile(three)
    try: kernel_profile(breaks)
    except ValueError: pytest.skip("not here")
@pytest.mark.max_kernels(3)
@pytest.mark.xfail(raises=ValueError, strict=True)
def test_expected(kernel_profile):
    kernel_profile(three)
    kernel_profile(breaks)
"""
)
def test_where_nothing_is_left_unjudged_a_test_may_catch(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=2, skipped=1, xfailed=1)


def test_disabled_nothing_is_judged_whatever_is_caught(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(kernel_profile):
    with pytest.raises(ZeroDivisionError): kernel_profile(lambda: 1 / 0)
""",
        "--kernelprof-disable",
    )
    result.assert_outcomes(passed=1)
