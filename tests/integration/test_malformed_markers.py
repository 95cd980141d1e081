"""Bad input is an ERROR of its one test, with the right form; the others run."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("max_cuda_time(200)", "max_cuda_time: 200 has no unit*max_cuda_time(\"200us\")*"),
        ('max_cuda_time("200 parsec")', "*no known time unit*"),
        ("max_kernels(-1)", "max_kernels: -1 is negative*max_kernels(3)*"),
        ("max_kernels(True)", "max_kernels: True is not a whole number*"),
        ("max_kernels()", "max_kernels: takes one value, got 0*"),
        ('max_kernels(1, mach="x")', "*unknown argument 'mach'*"),
        ('max_memcpys(0, direction="up")', "*direction='up' is none of h2d, d2h, d2d, p2p*"),
        ("kernelprof(rounds=0)", "rounds=0: expected a whole number of one or more*"),
        ('kernelprof(device="tpu")', "*expected \"cuda\" or \"cpu\"*"),
        ("kernelprof(speed=9)", "kernelprof: unknown option 'speed'*"),
        ("kernelprof(9)", "kernelprof: takes keyword arguments only*"),
        ("max_kernel(1)", "@pytest.mark.max_kernel is no marker; max_kernels was probably meant*"),
        ("max_sync(1)", "@pytest.mark.max_sync is no marker; max_syncs was probably meant*"),
    ],
)  # fmt: skip
def test_a_malformed_marker_is_an_error_of_its_test_alone(run, marker: str, words: str) -> None:
    result = run(
        f"""
@pytest.mark.{marker}
def test_bad(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_good(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"MarkerError: {words}"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_with_workers_it_is_the_same(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels("many")
def test_bad():
    pass
def test_good():
    pass
""",
        "-n2",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["MarkerError: max_kernels: 'many' is not a whole number*"])


def test_strict_markers_stop_a_misspelt_one_at_collection(run) -> None:
    result = run("@pytest.mark.max_kernel(1)\ndef test_bad(): pass\n", "--strict-markers")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*'max_kernel' not found in `markers`*"])


def test_a_marker_of_the_users_own_may_have_a_name_like_ours(
    run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nmarkers = max_kernel: mine\n")
    run("@pytest.mark.max_kernel(1)\ndef test_it(): pass\n").assert_outcomes(passed=1)


def test_a_malformed_marker_is_an_error_under_xfail_too(run) -> None:
    result = run("@pytest.mark.xfail\n@pytest.mark.max_kernels('x')\ndef test_it(): pass\n")
    result.assert_outcomes(errors=1)


def test_a_malformed_limit_at_run_time_is_an_error_under_xfail_too(run) -> None:
    result = run(
        """
@pytest.mark.xfail
def test_it(kernel_profile):
    kernel_profile.limit(max_kernals=3)
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*MarkerError: unknown limit 'max_kernals'; there are: max_*"])
