"""What is asked of the machine, on texts as drivers and kernels write them, and on this machine."""

from __future__ import annotations

import sys

import pytest

from pytest_kernelprof.cli import doctor
from pytest_kernelprof.cli.doctor import driver_version, examine_machine
from pytest_kernelprof.gpu.inventory import why_no_gpu


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n", "535.104.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            "580.65.06",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44  Sat\n", "590.44"),
        ("", ""),
    ],
)
def test_the_drivers_version(text: str, version: str) -> None:
    assert driver_version(text) == version


def test_this_machine_answers(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python)  # which has loaded torch
    machine = examine_machine()
    assert machine.torch.version
    assert bool(machine.torch.why_no_gpu) is bool(why_no_gpu())
    assert machine.packages["pytest"] == pytest.__version__
    assert machine.temp_error == ""
    assert machine.temp_folder
    if why_no_gpu():
        assert machine.canary.state == "no gpu"
        assert machine.canary_after_cpu is None


def test_a_process_that_dies_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> doctor.Canary:
        raise AssertionError("only its name is asked for")

    answer = doctor._ask(unknown, lambda why: doctor.Canary("crashed", why))
    assert answer.state == "crashed"
    assert answer.text.startswith("the process ended with status 1: AttributeError: ")
    monkeypatch.setattr(doctor, "_TIMEOUT_S", 0.01)
    torch = doctor._ask(doctor._ask_torch, doctor.TorchFacts)
    assert torch == doctor.TorchFacts("no answer within 0 s")


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    folder, error, free = doctor._try_temp_folder()
    assert folder == "/proc/nowhere"
    assert error
    assert free is None
