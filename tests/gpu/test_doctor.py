"""doctor and noise on a machine with a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pytest_kernelprof.cli.doctor import diagnose, examine_machine, has_failure

pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")


def kernelprof(*arguments: str) -> str:
    command = [sys.executable, "-m", "pytest_kernelprof.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_doctor_finds_nothing_that_keeps_counts_from_being_had() -> None:
    machine = examine_machine()
    findings = {finding.name: finding for finding in diagnose(machine)}
    assert not has_failure(findings.values())
    assert findings["canary"].state == "ok"
    assert findings["GPU"].state == "ok"
    assert machine.torch.gpus
    if machine.torch.cuda:
        assert machine.torch.cupti_version > 0


def test_the_doctor_prints_the_canary() -> None:
    lines = pytest.LineMatcher(kernelprof("doctor").splitlines())
    lines.fnmatch_lines(["ok * GPU *", "ok * canary * the profiler saw the kernel*"])


def test_noise_measures_all_times_and_gives_a_margin_for_each() -> None:
    report: dict[str, Any] = json.loads(
        kernelprof("noise", "--rounds=12", "--processes=2", "--json")
    )
    assert report["device"] == "cuda"
    assert len(report["spreads"]) == 9
    assert [margin["metric"] for margin in report["margins"]] == [
        "cuda_time",
        "latency",
        "launch_overhead",
    ]
    large = next(
        one
        for one in report["spreads"]
        if (one["workload"], one["metric"]) == ("large MLP", "cuda_time")
    )
    assert large["within"] < 0.1
