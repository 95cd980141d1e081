"""What each torch that is tried leaves of one step on the CPU: read everywhere, to one answer."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_kernelprof.api import Profile
from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import pack

FOLDER = Path(__file__).parents[2] / "traces" / "cpu"


def versions() -> list[str]:
    found = [path.name.split("-")[1].removesuffix(".json.gz") for path in FOLDER.glob("trace-*")]
    return sorted(found, key=lambda version: [int(one) for one in version.split(".")])


VERSIONS = versions()
OPERATORS = [
    "addmm",
    "gelu",
    "mm",
    "_softmax",
    "sum",
    "ones_like",
    "_softmax_backward_data",
    "mm",
    "mm",
    "gelu_backward",
    "mm",
    "sum",
    "recorded::double_relu",
    "clone",
]
THREE = ["aten::mm", "aten::gelu", "aten::mm"]
KERNELS = {
    "test_kept": THREE,
    "test_broken": THREE,
    "test_custom_operator": ["recorded::double_relu", "aten::sum"],
    "test_compiled": THREE,
}


def trace_of(version: str) -> Path:
    return FOLDER / f"trace-{version}.json.gz"


def run_of(version: str) -> Path:
    return FOLDER / f"run-{version}.json.gz"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_trace_of_each_has_the_same_operators(version: str) -> None:
    profile = Profile.from_trace(trace_of(version))
    assert [kernel.name.removeprefix("aten::") for kernel in profile.kernels] == OPERATORS
    assert profile.integrity.complete
    assert profile.record.environment.versions["torch"].partition("+")[0] == version
    assert len(profile.metrics["latency"].rounds) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_a_trace_of_each_is_shown(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(trace_of(version))]) == 0
    out = capsys.readouterr().out
    assert f"torch {version}" in out
    assert re.search(r"14 operators, [\d.]+us on the CPU; complete\.", out)


@pytest.mark.parametrize(("old", "new"), [*pairwise(VERSIONS), (VERSIONS[0], VERSIONS[-1])])
def test_two_of_them_do_not_differ_but_in_times(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(trace_of(old)), str(trace_of(new))]) == 0
    assert "14 operators, unchanged" in capsys.readouterr().out
    assert main(["compare", str(run_of(old)), str(run_of(new))]) == 0
    assert ": 6 unchanged\n" in capsys.readouterr().out


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_each_is_read_and_written_again(version: str) -> None:
    run = read_run(str(run_of(version)), timelines=True)
    tests = {test.id.partition("::")[2]: test for test in run.tests}
    outcomes = {name: test.outcome for name, test in tests.items()}
    assert outcomes == {
        **dict.fromkeys([*KERNELS, "test_compared"], "passed"),
        "test_broken": "failed",
    }
    for name, expected in KERNELS.items():
        (profile,) = tests[name].profiles
        assert [kernel.name for kernel in profile.kernels] == expected
        assert profile.environment.versions["torch"].partition("+")[0] == version
    (comparison,) = tests["test_compared"].comparisons
    assert [one.kernels for one in comparison.callables] == [3, 3]
    written = codec.encode(pack(run))
    recorded = json.loads(gzip.decompress(run_of(version).read_bytes()))
    assert json.loads(written) == {**recorded, "project": "", "commit": ""}  # which came later
    assert [test.id for test in read_run(str(run_of(version))).tests] == [t.id for t in run.tests]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_each_is_told_in_every_form(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "-v", str(run_of(version))]) == 0
    assert "test_custom_operator" in capsys.readouterr().out
    forms = [tmp_path / "run.html", tmp_path / "run.md", tmp_path / "run.json"]
    options = ["--html", "--markdown", "--benchmark-json"]
    asked = [f"{option}={path}" for option, path in zip(options, forms, strict=True)]
    assert main(["report", str(run_of(version)), *asked]) == 0
    assert all(f"torch {version}" in path.read_text() for path in forms[:2])
    assert json.loads(forms[2].read_text())["benchmarks"]


def test_nothing_in_them_names_a_machine() -> None:
    for path in FOLDER.iterdir():
        text = gzip.decompress(path.read_bytes()).decode()
        assert not [part for part in ("/home", "/root", "/tmp", "host_name") if part in text], path
