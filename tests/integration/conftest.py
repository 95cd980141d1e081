"""Small projects that are run with the real plugin on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

HEAD = """
import pytest, torch, torch.nn.functional as F
from pytest_kernelprof import IncompleteProfile, LimitExceeded, MarkerError
x = torch.ones(8, 8)
def three():
    return F.gelu(x @ x) + 1
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Write a test file (after HEAD) and run it on the CPU; options are added."""

    def run_it(code: str, *options: str, device: str | None = "cpu") -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + code)
        chosen = [f"--kernelprof-device={device}"] if device else []
        arguments = ["-p", "no:cacheprovider", "-rs", *chosen, *options]
        if "-n2" in options:
            return pytester.runpytest_subprocess(*arguments)
        return pytester.runpytest_inprocess(*arguments)

    return run_it


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, on any machine: the reason is what this one says or what the patch says."""
    from pytest_kernelprof.device import inventory as devices

    reason = devices.why_no_gpu() or "no GPU: hidden for this test"
    monkeypatch.setattr(devices, "why_no_gpu", lambda: reason)


@pytest.fixture(params=["-n0", "-n2"])
def workers(request: pytest.FixtureRequest) -> str:
    """Without and with pytest-xdist."""
    return str(request.param)
