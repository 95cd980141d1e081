"""Triton's benchmark files on a GPU: what do_bench would time is what is profiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.records.profile import Profile

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

INI = "[pytest]\nkernelprof_benchmarks = bench_*.py\n"
HEAD = """
import torch, triton
from triton.testing import Benchmark, do_bench, do_bench_cudagraph, perf_report
"""
OF_PROVIDERS = """
{head}
@perf_report(Benchmark(["M"], {x}, "provider", {lines}, {lines}, "plot", {{}}))
"""


def run(pytester: pytest.Pytester, code: str) -> dict[str, Profile]:
    """Run a file of benchmarks, each of which measures once: its profiles by their tests."""
    pytester.makeini(INI)
    pytester.makepyfile(bench_it=code)
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "-p", "no:randomly", "--kernelprof-json=run.json", "-s")
    )
    assert result.ret == 0
    found = {}
    for test in read_run("run.json").tests:
        (found[test.id.partition("::")[2]],) = test.profiles
    for name, profile in found.items():
        told = [f"{key}={profile.metrics[key].value}" for key in ("kernels", "gpu_busy", "latency")]
        print(name, *told, profile.integrity.cold)
        assert profile.integrity.complete, profile.integrity.problems
    return found


def decorated(x: str, *lines: str) -> str:
    return OF_PROVIDERS.format(head=HEAD, x=x, lines=list(lines))


def test_a_tuned_kernel_counts_once_though_its_autotuner_calls_do_bench(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("triton")
    pytester.makepyfile(tuned=Path(__file__).with_name("tuned.py").read_text())
    code = f"""{decorated("[4096, 65536]", "triton", "torch")}
def benchmark(M, provider):
    import tuned
    x = torch.randn(M, device="cuda")
    out = torch.empty_like(x)
    if provider == "torch":
        return do_bench(lambda: torch.mul(x, 2, out=out))
    return do_bench(lambda: tuned.launch(tuned.doubled, out, x), quantiles=[0.5, 0.2, 0.8])
"""
    found = run(pytester, code)
    assert len(found) == 4
    assert [profile.metrics["kernels"].value for profile in found.values()] == [1, 1, 1, 1]
    names = [kernel.name for kernel in found["benchmark[plot-M=4096-triton]"].kernels]
    assert ["doubled" in name for name in names] == [True]


def test_the_time_is_about_that_of_do_bench(pytester: pytest.Pytester) -> None:
    """A matrix product takes long against what the events of do_bench add."""
    pytest.importorskip("triton")
    code = f"""{decorated("[4096]", "torch")}
def benchmark(M, provider):
    x = torch.randn(M, M, device="cuda", dtype=torch.bfloat16)
    return do_bench(lambda: x @ x)
"""
    (profile,) = run(pytester, code).values()
    import torch
    from triton.testing import do_bench

    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    real_us = do_bench(lambda: x @ x, return_mode="median") * 1e3
    took_us = profile.metrics["gpu_busy"].value
    print("do_bench:", real_us, "gpu_busy:", took_us)
    assert took_us is not None
    assert 0.7 < took_us / real_us < 1.4


def test_a_graph_of_do_bench_is_measured_call_by_call_with_a_warm_cache(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("triton")
    code = f"""{decorated("[2**21]", "flushed", "warm")}
def benchmark(M, provider):
    x = torch.randn(M, device="cuda")  # 8 MB, less than the L2 cache has
    out = torch.empty_like(x)
    time_of = do_bench if provider == "flushed" else do_bench_cudagraph
    return time_of(lambda: torch.mul(x, 2, out=out))
"""
    found = run(pytester, code)
    flushed, warm = (found[f"benchmark[plot-M=2097152-{one}]"] for one in ("flushed", "warm"))
    took = [one.metrics["gpu_busy"].value or 0.0 for one in (flushed, warm)]
    print("flushed, warm:", took)
    assert [one.metrics["kernels"].value for one in (flushed, warm)] == [1, 1]
    assert 0 < took[1] < took[0]


def test_gradients_are_forgotten_before_each_round(pytester: pytest.Pytester) -> None:
    """With gradients of the round before, a backward adds to them: a kernel more."""
    pytest.importorskip("triton")
    code = f"""{decorated("[1024]", "kept", "forgotten")}
def benchmark(M, provider):
    x = torch.randn(M, device="cuda", requires_grad=True)
    y, dy = torch.relu(x), torch.randn(M, device="cuda")
    grads = [x] if provider == "forgotten" else None
    return do_bench(lambda: y.backward(dy, retain_graph=True), grad_to_none=grads)
"""
    found = run(pytester, code)
    kernels = {name: profile.metrics["kernels"] for name, profile in found.items()}
    counts = [kernels[f"benchmark[plot-M=1024-{one}]"].value for one in ("kept", "forgotten")]
    print("kept, forgotten:", counts)
    assert counts == [2, 1]
    assert set(kernels["benchmark[plot-M=1024-forgotten]"].rounds) == {1}
