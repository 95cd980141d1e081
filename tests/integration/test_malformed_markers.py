"""Bad input is an ERROR of its one test, with the right form; the others run."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from reported import errors_of

MALFORMED = [
    ("max_cuda_time(200)", "max_cuda_time: 200 has no unit*"),
    ('max_cuda_time("200 parsec")', "*no known time unit*"),
    ("min_throughput(600)", "min_throughput: 600 has no unit*"),
    ('min_throughput("600 TFLOPS/h")', "min_throughput: '600 TFLOPS/h' is neither above 0 in*"),
    ('min_bandwidth("0%")', "min_bandwidth: '0%' is neither above 0 in MB/s, GB/s, TB/s*"),
    ("max_kernels(-1)", "max_kernels: -1 is negative*"),
    ("max_kernels(True)", "max_kernels: True is not a whole number*"),
    ("max_kernels()", "max_kernels: takes one value, got none*"),
    ('max_kernels(1, mach="x")', "*unknown argument 'mach'*"),
    ('max_memcpys(0, direction="up")', "*direction='up' is not one of h2d, d2h, d2d, p2p*"),
    ("max_syncs(0, allow=3)", "max_syncs: allow=3 is no file: expected one as *"),
    ("kernelprof(rounds=0)", "rounds=0: expected a whole number of one or more*"),
    ('kernelprof(device="tpu")', "*expected \"cuda\" or \"cpu\"*"),
    ("kernelprof(speed=9)", "kernelprof: unknown option 'speed'*"),
    ("kernelprof(9)", "kernelprof: takes keyword arguments only*"),
    ("max_kernel(1)", "@pytest.mark.max_kernel is not a marker; did you mean max_kernels*"),
    ("max_sync(1)", "@pytest.mark.max_sync is not a marker; did you mean max_syncs*"),
]  # fmt: skip


def file_of(markers: Iterable[str]) -> str:
    """A test for each, and after it one that is well formed."""
    return "".join(
        f"""
@pytest.mark.{marker}
def test_{number}_bad(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_{number}_good(kernel_profile):
    kernel_profile(three)
"""
        for number, marker in enumerate(markers)
    )


def assert_each_says(result: pytest.RunResult, expected: list[tuple[str, str, str]]) -> None:
    """Each error under the name of its test, so that none stands in for another's: of each marker
    the first sentence, and below it the line of the marker and what to do."""
    result.assert_outcomes(passed=len(expected), errors=len(expected))
    found = errors_of(result)
    assert [*found] == [f"test_{number}_bad" for number in range(len(expected))]
    for (marker, sentence, rest), (said, below) in zip(expected, found.values(), strict=True):
        assert fnmatchcase(said, f"MarkerError: {sentence}"), said
        where = f"at test_it.py:*: @pytest.mark.{marker}"
        assert fnmatchcase(below, f"{where}  to do: {rest}"), below
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_malformed_marker_is_an_error_of_its_test_alone(run) -> None:
    result = run(file_of(marker for marker, _ in MALFORMED))
    assert result.ret == 1
    assert_each_says(result, [(marker, words, "*") for marker, words in MALFORMED])


@pytest.mark.project(
    """
@pytest.mark.max_kernels("many")
def test_bad():
    pass
def test_good():
    pass
"""
)
def test_with_workers_it_is_the_same(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.assert_outcomes(passed=1, errors=1)
    result_of_workers.stdout.fnmatch_lines(
        ["E   MarkerError: max_kernels: 'many' is not a whole number*"]
    )


def test_strict_markers_stop_a_misspelt_one_at_collection(run) -> None:
    # Of a name that no other run here registers: pytest remembers them for the process.
    result = run("@pytest.mark.max_kernal(1)\ndef test_bad(): pass\n", "--strict-markers")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*'max_kernal' not found in `markers`*"])


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
    result.stdout.fnmatch_lines(
        ["*MarkerError: unknown limit 'max_kernals' (did you mean max_kernels?); the limits are: *"]
    )


FORMS = [
    ("max_kernels", "max_kernels(3) or max_kernels(0, match=\"elementwise\")"),
    ("max_kernels(-1)", "max_kernels(3) or *"),
    ('max_kernels("3")', "max_kernels(3) or *"),
    ("max_kernels(1.5)", "max_kernels(3) or *"),
    ("max_kernels(1, 2)", "max_kernels(3) or *"),
    ('max_kernels(1, match="(")', "max_kernels(3) or *"),
    ('max_kernels(1, match="a{99999999999}")', "max_kernels(3) or *"),
    ("max_launches(False)", "max_launches(3)"),
    ("max_cuda_time(200)", 'max_cuda_time("200us"), *'),
    ("max_cuda_time(-1)", 'max_cuda_time("200us"), max_cuda_time(us=200) or *'),
    ('max_cuda_time("-1us")', 'max_cuda_time("200us"), *'),
    ("max_cuda_time(us=True)", 'max_cuda_time("200us"), *'),
    ("max_cuda_time(us=1, ms=1)", 'max_cuda_time("200us"), *'),
    ("max_cuda_time(us=10**400)", 'max_cuda_time("200us"), *'),
    ('max_cuda_time("nan us")', 'max_cuda_time("200us"), *'),
    ('max_latency("30%")', 'max_latency("300us"), *'),
    ('max_launch_overhead("130%")', 'max_launch_overhead("40us"), *or*("30%")'),
    ('max_exposed_comm("130%")', 'max_exposed_comm("50us"), *or*("10%")'),
    ("max_exposed_comm(50)", 'max_exposed_comm("50us"), *'),
    ("max_launch_overhead(40)", 'max_launch_overhead("40us"), *'),
    ("max_memcpys(0, direction=1)", "max_memcpys(0) or *"),
    ("max_memcpy_bytes(1000)", 'max_memcpy_bytes("1 MB") or *'),
    ('max_memcpy_bytes("1 parsec")', 'max_memcpy_bytes("1 MB") or *'),
    ("max_syncs(-1)", 'max_syncs(0) or max_syncs(0, allow="logger.py")'),
    ('max_peak_memory("64")', 'max_peak_memory("64 MB")'),
    ('max_peak_memory("-1 MB")', 'max_peak_memory("64 MB")'),
    ("max_allocations()", "max_allocations(0)"),
    ("max_recompiles(None)", "max_recompiles(0)"),
    ('max_registers("128")', "max_registers(128) or *"),
    ("max_shared_memory(1024)", 'max_shared_memory("100 KB") or *'),
    ("max_spills(0, match=1)", 'max_spills(0, match="gemm") or *'),
    ("max_jit_compiles('0')", "max_jit_compiles(0)"),
    ("max_autotunes(0.5)", "max_autotunes(0)"),
    ("max_graph_breaks(1, 2)", "max_graph_breaks(0)"),
    ("expect_kernels(1)", 'expect_kernels("mm", "gelu", ..., "mm"), *'),
    ('expect_kernels("mm", strict=True)', 'expect_kernels("mm", "gelu", ..., "mm"), *'),
    ("forbid_kernels()", 'forbid_kernels("elementwise")'),
    ('forbid_kernels("")', 'forbid_kernels("elementwise")'),
    ('kernelprof(warmup="3")', 'kernelprof(warmup=3, rounds=24, device="cpu", *)'),
    ("kernelprof(flush_l2=1)", 'kernelprof(warmup=3, rounds=24, device="cpu", *)'),
]  # fmt: skip


def test_the_right_form_is_in_the_message(run) -> None:
    result = run(file_of(marker for marker, _ in FORMS))
    see = "(see docs/reference.md#markers)"
    assert_each_says(result, [(marker, "*", f"write {form} {see}") for marker, form in FORMS])


def test_a_limit_too_large_for_any_count_is_kept_or_refused(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(10**400)
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.stdout.no_fnmatch_line("*OverflowError*")


def test_a_malformed_marker_on_a_class_is_an_error_of_each_of_its_tests(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels("many")
class TestBad:
    def test_one(self): pass
    def test_two(self): pass
def test_good(): pass
"""
    )
    result.assert_outcomes(passed=1, errors=2)


def test_a_misspelt_marker_is_an_error_of_its_test_without_strict_markers(
    run, pytester: pytest.Pytester
) -> None:
    result = run("@pytest.mark.forbid_kernel('x')\ndef test_bad(): pass\ndef test_good(): pass\n")
    result.assert_outcomes(passed=1, errors=1)
    assert " ".join(errors_of(result)["test_bad"]) == (
        "MarkerError: @pytest.mark.forbid_kernel is not a marker; did you mean forbid_kernels? "
        "at test_it.py:6: @pytest.mark.forbid_kernel('x')  "
        'to do: write forbid_kernels("elementwise"), or register forbid_kernel if it is your own '
        "marker (see docs/reference.md#markers)"
    )


def test_a_marker_that_is_not_near_ours_is_nobodys_business(run) -> None:
    run("@pytest.mark.slow\ndef test_it(): pass\n").assert_outcomes(passed=1, warnings=1)


NEIGHBOURS = """
@pytest.mark.kernels(1)
def test_a(): pass
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.kernels(2)
def test_b(n): pass
@pytest.mark.max_ops(1)
def test_c(): pass
@pytest.mark.kernel_limit(1)
class TestD:
    def test_d(self): pass
@pytest.mark.max_retries(3)
@pytest.mark.kernels
def test_others(): pass
"""
TOLD = [
    f"kernelprof: @pytest.mark.{name}(...) limits nothing in {tests}: did you mean max_kernels? If "
    f"{name} is your own marker, register it"
    for name, tests in (
        ("kernel_limit", "1 test (test_it.py::TestD::test_d)"),
        ("kernels", "3 tests (test_it.py::test_a, ...)"),
        ("max_ops", "1 test (test_it.py::test_c)"),
    )
]


def lines_of_neighbours(result: pytest.RunResult) -> list[str]:
    return sorted(line for line in result.outlines if "did you mean" in line)


@pytest.mark.project(NEIGHBOURS)
def test_a_marker_with_a_number_and_a_name_beside_ours_is_told_at_the_end(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=6)
    first_of_all = [line.replace("test_b[1]", "test_a") for line in lines_of_neighbours(result)]
    assert [line.replace("test_b[2]", "test_a") for line in first_of_all] == TOLD


@pytest.mark.parametrize("option", ["--disable-warnings", "-q"])
def test_it_is_told_also_without_warnings_and_in_a_quiet_run(run, option: str) -> None:
    assert lines_of_neighbours(run(NEIGHBOURS, option)) == TOLD


def test_a_run_that_is_to_say_nothing_does_not_tell_it(run) -> None:
    assert lines_of_neighbours(run(NEIGHBOURS, "-qq")) == []


def test_a_registered_marker_of_the_users_own_is_not_told(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  kernels(n): mine\n  max_ops: mine\n  kernel_limit: x")
    assert lines_of_neighbours(run(NEIGHBOURS)) == []


def test_texts_may_be_of_a_type_of_the_users_own(run) -> None:
    path = Path(__file__).parents[1] / "traces" / "mlp.json.gz"
    result = run(
        f"""
import enum
class Text(str): pass
class Way(str, enum.Enum):
    DOWN = "d2h"
@pytest.mark.max_registers(9, match=Text("nvjet"))
def test_match(kernel_profile):
    kernel_profile.load({str(path)!r})
@pytest.mark.max_memcpys(0, direction=Way.DOWN)
@pytest.mark.forbid_kernels(Text("clone"))
def test_direction(kernel_profile):
    kernel_profile.load({str(path)!r})
def test_region(kernel_profile):
    with kernel_profile.region(Text("block")):
        three()
def test_no_name(kernel_profile):
    with kernel_profile.region(5):
        three()
""",
        "--kernelprof-json=run.json",
        device="auto",
    )
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "E   max_registers(match='nvjet'): 168 > limit 9",
            "E *MarkerError: region(5): expected a name as text*",
        ]
    )
