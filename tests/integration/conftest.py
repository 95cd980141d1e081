"""Small projects that are run with the real plugin on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from on_workers import Project, Wire, run_all, show, two_workers

HEAD = """
import pytest, torch, torch.nn.functional as F
from pytest_kernelprof import IncompleteProfile, LimitExceeded, MarkerError
x = torch.ones(8, 8)
def three():
    return F.gelu(x @ x) + 1
"""

Run = Callable[..., pytest.RunResult]
Once = Callable[[str, Callable[[Path], None]], Path]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "project(code, *settings): what the fixtures result and result_of_workers run: a test "
        "file (after HEAD) with arguments for pytest and lines of pytest.ini",
    )


@pytest.fixture
def run(pytester: pytest.Pytester, request: pytest.FixtureRequest) -> Run:
    """Write a test file (after HEAD) and run it on the CPU; options are added, ``-n2`` with workers
    that start quickly."""

    def run_it(
        code: str, *options: str, device: str | None = "cpu", plugins: Sequence[object] = ()
    ) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + code)
        chosen = [f"--kernelprof-device={device}"] if device else []
        given, wire = list(options), [Wire()]
        if "-n2" in options:
            at = given.index("-n2")
            given[at : at + 1], wire = two_workers(request.getfixturevalue("python")), []
        arguments = ["-p", "no:cacheprovider", "-rs", *chosen, *given]
        return pytester.runpytest_inprocess(*arguments, plugins=[*wire, *plugins])

    return run_it


@pytest.fixture(params=["-n0", "-n2"])
def workers(request: pytest.FixtureRequest) -> str:
    """Without and with pytest-xdist."""
    return str(request.param)


@pytest.fixture
def result(
    request: pytest.FixtureRequest, workers: str, run: Run, pytester: pytest.Pytester
) -> pytest.RunResult:
    """The project of the test's marker, run without and with workers."""
    if workers == "-n2":
        found: pytest.RunResult = request.getfixturevalue("result_of_workers")
        return found
    project = _project_of(request.node)
    pytester.makeini(project.ini)
    return run(project.code.removeprefix(HEAD), *project.arguments)


@pytest.fixture
def result_of_workers(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, once: Once, python: str
) -> pytest.RunResult:
    """The project of the test's marker in a run with two workers, which many projects share."""
    project = _project_of(request.node)
    together = [
        other
        for other in dict.fromkeys(map(_project_of, filter(_needs_workers, request.session.items)))
        if other.run == project.run
    ]
    folder = once(f"workers-{project.run}", lambda path: run_all(pytester, path, together, python))
    shown = show(pytester, folder, together.index(project), project)
    return pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-rs", *project.arguments, plugins=[shown]
    )


@pytest.fixture
def quick_references(monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """References of --kernelprof-against have torch loaded when they start, which is most of what
    else they would take. Usual ones are in test_each_test_is_compared, without workers, and where
    it matters what an interpreter finds installed."""
    from pytest_kernelprof.baselines import worker

    command = worker._command

    def quick(*given: Any) -> list[str]:
        return [python, *command(*given)[1:]]

    monkeypatch.setattr(worker, "_command", quick)


def _project_of(item: pytest.Item) -> Project:
    marker = item.get_closest_marker("project")
    assert marker is not None, f"{item.nodeid} has no marker project(code, *settings)"
    code, *settings = marker.args
    return Project(HEAD + code, tuple(settings))


def _needs_workers(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return "result_of_workers" in names or (
        "result" in names and parameters.get("workers") == "-n2"
    )


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, on any machine: the reason is what this one says or what the patch says."""
    from pytest_kernelprof.gpu import inventory as devices

    reason = devices.why_no_gpu() or "no CUDA device: hidden for this test"
    monkeypatch.setattr(devices, "why_no_gpu", lambda: reason)
