"""Records what the torch of this environment leaves of one step on the CPU: a trace and a run.

    python tests/traces/record_cpu.py [FOLDER]

Two files, ``trace-VERSION.json.gz`` and ``run-VERSION.json.gz``; no GPU is needed. With each torch
that is tried there is a pair in ``tests/traces/cpu``, which tests/unit/trace/test_torch_versions.py
holds to one and the same answer. Machine paths are taken out.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import torch
import torch.nn.functional as F
from scrubbing import scrub

from pytest_kernelprof.api import Profile
from pytest_kernelprof.measure.policy import Plan
from pytest_kernelprof.measure.runner import measure

TESTS = """
import pytest, torch, torch.nn.functional as F
X = torch.randn(64, 64)
@torch.library.custom_op("recorded::double_relu", mutates_args=())
def double_relu(x: torch.Tensor) -> torch.Tensor:
    return (x + x).relu()
def mlp(x):
    return F.gelu(x @ x) @ x
@pytest.mark.max_kernels(3)
@pytest.mark.max_latency("10s")
def test_kept(kernel_profile, kernelprof_device):
    kernel_profile(mlp, X)
@pytest.mark.max_kernels(2)
def test_broken(kernel_profile, kernelprof_device):
    kernel_profile(mlp, X)
@pytest.mark.expect_kernels("double_relu", "sum")
def test_custom_operator(kernel_profile, kernelprof_device):
    kernel_profile(lambda: double_relu(X).sum())
@pytest.mark.max_recompiles(0)
def test_compiled(kernel_profile, kernelprof_device):
    kernel_profile(torch.compile(mlp, backend="eager"), X)
def test_compared(kernel_profile, kernelprof_device):
    kernel_profile.compare(mlp, mlp, X, metric="latency")
@pytest.mark.max_cuda_time("1ms")
def test_for_a_gpu(kernel_profile):
    kernel_profile(mlp, X)
"""


@torch.library.custom_op("recorded::double_relu", mutates_args=())
def double_relu(x: torch.Tensor) -> torch.Tensor:
    return (x + x).relu()


class Step:
    """Forward and backward of a small model, a custom operator, a thread, a range."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16, bias=False)
        self.x = torch.randn(8, 16)

    def __call__(self) -> None:
        for parameter in (*self.up.parameters(), *self.down.parameters()):
            parameter.grad = None
        with torch.profiler.record_function("a range"):
            y = self.down(F.gelu(self.up(self.x)))
        F.softmax(y, -1).sum().backward()
        double_relu(self.x)
        worker = threading.Thread(target=lambda: self.x.t().contiguous())
        worker.start()
        worker.join()


def record_trace(path: Path) -> None:
    _, measurement = measure(Step(), Plan("cpu", host_rounds=3))
    profile = Profile.of(measurement)
    profile.save_trace(path)
    scrub(path)
    print(profile, [kernel.name for kernel in profile.kernels])


def record_run(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_recorded.py").write_text(TESTS)
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        options = ["-p", "no:randomly", "-p", "no:cacheprovider", "--kernelprof-json=run.json"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        written = Path(folder, "run.json").read_bytes()
        assert folder.encode() not in written
    path.write_bytes(gzip.compress(written, 9, mtime=0))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    version = torch.__version__.partition("+")[0]
    record_trace(folder / f"trace-{version}.json.gz")
    record_run(folder / f"run-{version}.json.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "cpu")
