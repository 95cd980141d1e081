"""kernelprof doctor and kernelprof noise, run as users run them, on the CPU."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pytest_kernelprof
from pytest_kernelprof import Profile, api
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.cli.noise import lines_of, report_of
from pytest_kernelprof.records.recording import Conditions, Neighbour

ROOT = Path(pytest_kernelprof.__file__).parents[1]


Here = Callable[..., tuple[int, str, str]]


def kernelprof(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest_kernelprof.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.fixture
def here(python: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run the command in this process; those that it starts have loaded torch already."""
    monkeypatch.setattr(sys, "executable", python)

    def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        return main(list(arguments)), *capsys.readouterr()

    return run


def test_the_doctor_is_useful_without_a_gpu() -> None:
    done = kernelprof("doctor", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (0, "")
    lines = pytest.LineMatcher(done.stdout.splitlines())
    lines.fnmatch_lines(
        [
            "ok * torch * 2.*",
            "warn * GPU * no CUDA device: *",
            "* -> *",
            "ok * other tools *",
            "ok * pytest * *, pytest-benchmark *",
            "ok * temporary files *",
        ]
    )


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A folder in which torch cannot be imported, as where it is not installed."""
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')\n")
    (tmp_path / "triton.py").write_text("raise ImportError('No module named triton')\n")
    return str(tmp_path)


def test_the_doctor_without_torch_fails_with_the_remedy_and_no_traceback(broken: str) -> None:
    done = kernelprof("doctor", PYTHONPATH=os.pathsep.join([broken, str(ROOT)]))
    assert (done.returncode, done.stderr) == (1, "")
    lines = pytest.LineMatcher(done.stdout.splitlines())
    lines.fnmatch_lines(["fail * torch * torch cannot be imported*", "* -> install *", "ok *"])


def test_the_doctor_names_another_tool(here: Here) -> None:
    status, out, _ = here("doctor", NSYS_PROFILING_SESSION_ID="1")
    assert status == 0
    assert "Nsight Systems" in out


def test_the_doctor_survives_variables_that_are_no_text(here: Here) -> None:
    status, out, errors = here("doctor", KINETO_CONFIG="a\udcffb")
    assert (status, errors) == (0, "")
    assert "KINETO_CONFIG=a\\udcffb" in out


def test_noise_on_the_cpu_prints_the_margin_of_the_latency(here: Here) -> None:
    status, out, errors = here("noise", "--device=cpu", "--rounds=8", "--processes=2")
    assert (status, errors) == (0, "")
    lines = pytest.LineMatcher(out.splitlines())
    lines.fnmatch_lines(
        [
            "CPU (*), torch *: 8 rounds in each of 2 processes",
            "*median * within * lag 1 * between * margin * what",
            "*s * % * % *+*s  latency of small MLP",
            "On the CPU only latency is measured*",
            "  max_latency: median + * %",
            "Rule: *",
        ]
    )


def report_with(fraction: float) -> dict[str, Any]:
    margin = {"metric": "latency", "fraction": fraction, "us": None, "text": "a margin"}
    counts = {"place": "here", "rounds": 8, "processes": 2, "device": "cpu"}
    return {**counts, "spreads": [], "margins": [margin], "doubts": [], "rule": "a rule"}


@pytest.mark.parametrize(("fraction", "told"), [(0.4, False), (1.5, True)])
def test_a_margin_that_catches_little_is_said_to(fraction: float, told: bool) -> None:
    text = "\n".join(lines_of(report_with(fraction)))
    assert ("catches little" in text) is told


def test_noise_as_json_holds_all_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["noise", "--device=cpu", "--rounds=8", "--processes=1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["device"], report["processes"]) == (1, "cpu", 1)
    assert len(report["runs"][0]["small MLP"]["latency"]) == 8
    assert report["spreads"][0]["between"] is None
    assert report["margins"] == []


def test_noise_of_one_process_says_why_there_is_no_margin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["noise", "--device=cpu", "--rounds=2", "--processes=1"]) == 0
    assert "No margins: one process" in capsys.readouterr().out


@pytest.fixture
def contended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every profile is taken as it is, and says that another process worked meanwhile."""
    seen = Conditions(blocks=1, contenders=(Neighbour(7, 60),))

    def taken(*args: Any, **kwargs: Any) -> Profile:
        return Profile(replace(profile(*args, **kwargs).record, conditions=seen))

    profile = api.profile
    monkeypatch.setattr(api, "profile", taken)


@pytest.mark.usefixtures("contended")
def test_noise_of_a_disturbed_machine_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["noise", "--device=cpu", "--rounds=8", "--processes=1"]) == 0
    printed = capsys.readouterr().out
    assert "Disturbed: small MLP: CONTENDED: other processes worked on this GPU (pid 7" in printed


@pytest.mark.usefixtures("contended")
def test_noise_of_a_disturbed_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["noise", "--device=cpu", "--rounds=8", "--processes=1", "--json"]) == 0
    (doubt,) = json.loads(capsys.readouterr().out)["doubts"]
    assert doubt.startswith("small MLP: CONTENDED")


def test_disturbed_times_give_no_margins() -> None:
    answer = {"device": "cpu", "place": "here", "doubts": []}
    quiet = [{**answer, "run": {"w": {"latency": [1.0] * 12}}} for _ in range(3)]
    chosen = argparse.Namespace(rounds=12)
    assert report_of(chosen, quiet)["margins"]
    quiet[1]["doubts"] = ["w: CONTENDED"]
    report = report_of(chosen, quiet)
    assert (report["doubts"], report["margins"]) == (["w: CONTENDED"], [])
    assert report["spreads"][0]["margin_us"] is None
    assert lines_of(report)[-1].startswith("No margins: measure again when the GPU is cool")


def test_noise_on_a_gpu_that_is_not_there_is_exit_status_2_and_one_line(here: Here) -> None:
    status, out, errors = here("noise", "--device=cuda", CUDA_VISIBLE_DEVICES="")
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("kernelprof: process 1 ended with status 2: no CUDA device: ")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--rounds=1", "got '1'; expected a whole number of 2 or more"),
        ("--rounds=many", "got 'many'; expected a whole number of 2 or more"),
        ("--processes=0", "got '0'; expected a whole number of 1 or more"),
        ("--processes=-3", "got '-3'; expected a whole number of 1 or more"),
    ],
)
def test_nonsense_names_what_was_expected(
    argument: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["noise", argument]) == 2
    assert capsys.readouterr().err == f"kernelprof: {argument.partition('=')[0]}: {words}\n"


def test_an_unknown_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["noise", "--device=tpu"])
    assert ended.value.code == 2
    assert "invalid choice: 'tpu'" in capsys.readouterr().err
