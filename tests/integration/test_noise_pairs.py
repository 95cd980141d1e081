"""kernelprof noise --pairs: real processes in turn, on a clock that the CPU has."""

from __future__ import annotations

import json
import sys

import pytest

from pytest_kernelprof.cli import noise_pairs
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.device.inventory import current_device


@pytest.fixture
def _on_the_cpu(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(noise_pairs, "current_device", lambda kind: current_device("cpu"))


def clock(monkeypatch: pytest.MonkeyPatch, us: str) -> None:
    """A round takes so long, where ``n`` is the number of the process."""
    started = iter(range(100))

    def code(n: int) -> str:
        times = f"lambda taken, n={n}: ({us},) * taken.facts.rounds"
        return f"{noise_pairs._CODE}import pytest_kernelprof.measure.more_rounds as m; " + (
            f"m.times_of = {times}; "
        )

    class Numbered(noise_pairs.Paired):
        def __init__(self, device: object) -> None:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(noise_pairs, "_CODE", code(next(started)))
                super().__init__(device)  # type: ignore[arg-type]

    monkeypatch.setattr(noise_pairs, "Paired", Numbered)


@pytest.mark.usefixtures("_on_the_cpu")
def test_the_effect_of_order_is_told_apart_from_the_spread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, "100.0 + n % 2")  # who comes up second takes one per cent longer
    assert main(["noise", "--pairs=4"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith(": 4 pairs of fresh processes of the same code")
    assert lines[1] == "workload cuda time first faster spread largest suspected margin"
    assert lines[2].endswith("us +1.00 % 0.00 % 1.00 % 0 of 4 2.0 %")
    assert "--kernelprof-margin=2.0% and above raises no alarm on these." in lines


@pytest.mark.usefixtures("_on_the_cpu")
def test_a_process_that_cannot_measure_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, "1 / 0")
    assert main(["noise", "--pairs=4", "--json"]) == 2
    assert "a pair could not measure: here: ZeroDivisionError" in capsys.readouterr().err


def test_without_a_gpu_it_says_so(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["noise", "--pairs"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_of_disturbed_pairs_there_is_no_margin(capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_kernelprof.schema.turns import TimedPair

    pairs = [TimedPair(first, 1.0, 6, 10.0, 10.0) for first in ("candidate", "reference") * 2]
    report = noise_pairs.report_of("a GPU", {"add": pairs}, ["add: CONTENDED"])
    assert report["rows"][0]["margin"] is None
    lines = noise_pairs.lines_of(json.loads(json.dumps(report)))
    assert "Disturbed: add: CONTENDED." in lines
    assert lines[-1].startswith("No margin: measure again")
