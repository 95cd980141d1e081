"""Every marker on the GPU: kept it passes, broken it fails with its own words."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

HEAD = """
import pytest, torch, torch.nn.functional as F
x = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
def mlp():
    return F.gelu(x @ x) @ x
"""

CASES = {
    "kernels": (
        "max_kernels(3)",
        "max_kernels(2)",
        "mlp",
        "max_kernels: 3 > limit 2*",
    ),
    "match": (
        'max_kernels(1, match="gelu")',
        'max_kernels(0, match="gelu")',
        "mlp",
        "max_kernels(match='gelu'): 1 > limit 0*",
    ),
    "launches": (
        "max_launches(3)",
        "max_launches(1)",
        "mlp",
        "max_launches: 3 > limit 1*",
    ),
    "cuda_time": (
        'max_cuda_time("1s")',
        'max_cuda_time("10ns")',
        "mlp",
        "max_cuda_time: *us > limit 0.01us*",
    ),
    "overhead": (
        'max_launch_overhead("1s")',
        'max_launch_overhead("10ns")',
        "mlp",
        "max_launch_overhead: *us > limit 0.01us*",
    ),
    "overhead_share": (
        'max_launch_overhead("100%")',
        'max_launch_overhead("0%")',
        "mlp",
        "max_launch_overhead: *us > limit 0.0us*",
    ),
    "exposed_comm": (  # of one process there is none, which is known
        'max_exposed_comm("0us")',
        'max_cuda_time("10ns")',
        "mlp",
        "max_cuda_time: *us > limit 0.01us*",
    ),
    "latency": (
        'max_latency("1s")',
        "max_latency(us=0.1)",
        "mlp",
        "max_latency: *us > limit 0.1us*",
    ),
    "syncs": (
        "max_syncs(0)",
        "max_syncs(0)",
        ("mlp", "lambda: x.sum().item()"),
        "max_syncs: 1 > limit 0",
    ),
    "memcpys": (
        'max_memcpys(0, direction="h2d")',
        'max_memcpys(0, direction="d2h")',
        "lambda: x.cpu()",
        "max_memcpys(d2h): 1 > limit 0",
    ),
    "memcpy_bytes": (
        'max_memcpy_bytes("1 MB")',
        'max_memcpy_bytes("1 KB")',
        "lambda: x.cpu()",
        "max_memcpy_bytes: 524 KB > limit 1 KB",
    ),
    "peak_memory": (
        'max_peak_memory("2 MB")',
        'max_peak_memory("1 KB")',
        "mlp",
        "max_peak_memory: 1.05 MB > limit 1 KB",
    ),
    "allocations": (
        "max_allocations(0)",
        "max_allocations(0)",
        ("mlp", "lambda: (torch.cuda.empty_cache(), torch.empty(1 << 27, device='cuda'))"),
        "max_allocations: * > limit 0*",
    ),
    "expect": (
        'expect_kernels("aten::mm", "gelu", ..., "aten::mm")',
        'expect_kernels("aten::mm", "relu", ...)',
        "mlp",
        "expect_kernels: kernel 2: expected 'relu', got *",
    ),
    "forbid": (
        'forbid_kernels("relu")',
        'forbid_kernels("elementwise")',
        "mlp",
        "forbid_kernels: 1 forbidden kernel ran: #2 vectorized_elementwise *('elementwise')*",
    ),
}
TABLES = {
    "syncs": ("*wait in cudaStreamSync*", "*cudaStreamSync*test_*.py:*aten::_local_scalar_dense*"),
    "memcpys": ("*524 KB*Memcpy DtoH*test_*.py:*aten::copy_*",),
    "memcpy_bytes": ("*524 KB*Memcpy DtoH*test_*.py:*aten::copy_*",),
    "allocations": ("*no kernels were launched*",),
}
SURE = {
    "cuda_time": "  x*, 99 % CI *..*us, * rounds*",
    "overhead": "  x*",
    "overhead_share": "  0% of the latency *us*",
    "exposed_comm": "  x*",
    "latency": "  *99 % CI*",
}
"""How sure a time is stands below it."""
PLACE = "*test_*.py:*"
LINE = "    * | return F.gelu(x @ x) @ x"
LAUNCHED = ("kernels", "match", "launches", "cuda_time", "exposed_comm", "forbid")
"""Of these the line that launches what exceeds the limit stands below it."""


@pytest.mark.parametrize("case", CASES)
def test_a_limit_passes_when_kept_and_fails_with_its_words_when_broken(
    pytester: pytest.Pytester, case: str
) -> None:
    kept, broken, code, words = CASES[case]
    good, bad = code if isinstance(code, tuple) else (code, code)
    pytester.makepyfile(
        test_it=HEAD
        + f"""
@pytest.mark.{kept}
def test_kept(kernel_profile):
    kernel_profile({good})
@pytest.mark.{broken}
def test_broken(kernel_profile):
    kernel_profile({bad})
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    sure = [SURE[case]] if case in SURE else []
    place = LINE if case in LAUNCHED else PLACE
    table = TABLES.get(case, ("*vectorized*test_*.py:*",))
    result.stdout.fnmatch_lines([f"E   {words}*"])
    result.stdout.fnmatch_lines_random([*sure, place, *table])


def test_workers_give_the_same_verdicts_table_and_exit_code(pytester: pytest.Pytester) -> None:
    tests = "\n".join(
        f"@pytest.mark.{CASES[case][which]}\ndef test_{case}_{which}(kernel_profile):\n"
        f"    kernel_profile({code if isinstance(code := CASES[case][2], str) else code[which]})\n"
        for case in ("kernels", "launches", "syncs", "memcpys", "expect", "forbid")
        for which in (0, 1)
    )
    pytester.makepyfile(HEAD + tests)
    outcomes = []
    for workers in ("-n0", "-n2"):
        result = pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", workers, "--kernelprof-report", "-v"
        )
        # Sign, kernels, name: the times differ.
        rows = sorted(
            " ".join([*row[:2], row[-1]])
            for line in result.outlines
            if len(row := line.split()) > 3 and row[0] in ("✓", "✗") and row[-1].startswith("test_")
        )
        outcomes.append((result.ret, result.parseoutcomes(), rows))
    for ret, counts, rows in outcomes:
        assert (ret, counts["passed"], counts["failed"], len(rows)) == (1, 6, 6, 12)
    assert outcomes[0][2] == outcomes[1][2]


def test_a_marked_test_without_the_fixture_has_its_call_phase_profiled(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.max_kernels(1)
def test_three():
    mlp()
@pytest.mark.max_latency("1s")
def test_host_time():
    mlp()
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*max_latency: not measured*kernel_profile(fn)*",
            "E   max_kernels: 3 > limit 1*",
        ]
    )


def test_gpu_tests_run_and_are_not_skipped_when_a_gpu_is_required(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.max_kernels(3)
def test_device(kernel_profile, kernelprof_device):
    assert kernelprof_device == "cuda"
    kernel_profile(mlp)
"""
    )
    pytester.runpytest_inprocess("--kernelprof-require-gpu").assert_outcomes(passed=1)
