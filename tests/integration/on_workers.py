"""One run with pytest-xdist for many small projects, each of which is then shown by itself.

Workers take seconds to start, so projects share them. What the controller got from them, over their
real channel, is kept; of that the part of one project is handed to a pytest that runs nothing
itself, and so prints it, counts it and ends as if the project had been run alone.
"""

from __future__ import annotations

import importlib
import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import execnet
import pytest

from pytest_kernelprof.plugin.collector import EXPECTED_ATTRIBUTE

# A project is in the first run that has all of its settings. Those of one run stand together as
# none changes what another one does.
RUNS: tuple[tuple[str, ...], ...] = (
    (),
    (
        *("--kernelprof-stacks", "--kernelprof-trace-dir=traces", "--kernelprof-report", "-v"),
        *("--kernelprof-json=run.json", "--kernelprof-github"),
        "--kernelprof-html=out/run.html",
    ),
    ("--kernelprof-all", "--kernelprof-report", "kernelprof_rounds = 5"),
    ("--kernelprof-only", "--kernelprof-rounds=4"),
    ("--kernelprof-disable",),
)
_SEEN = "seen"


@dataclass(frozen=True)
class Project:
    """A test file with what it is run with: arguments, which begin with a dash, and ini lines."""

    code: str
    settings: tuple[str, ...] = ()

    @property
    def run(self) -> int:
        """Which of the shared runs it is in."""
        return next(i for i, have in enumerate(RUNS) if set(self.settings) <= set(have))

    @property
    def arguments(self) -> list[str]:
        return [setting for setting in self.settings if setting.startswith("-")]

    @property
    def ini(self) -> str:
        return "\n".join(["[pytest]", *(s for s in self.settings if not s.startswith("-"))])


def two_workers(python: str) -> list[str]:
    """``-n2``, with workers of this interpreter."""
    return [f"--tx=2*popen//python={python}", "--dist=load"]


def run_all(
    pytester: pytest.Pytester, folder: Path, projects: Sequence[Project], python: str
) -> None:
    """Run projects that share a run with two workers, in a folder, where what was seen is kept."""
    together = Project("", RUNS[projects[0].run])
    (folder / "pytest.ini").write_text(together.ini)
    for number, project in enumerate(projects):
        (folder / _file_of(number)).write_text(project.code.strip(), encoding="utf-8")
    seen = Seen()
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        result = pytester.runpytest_inprocess(
            *two_workers(python),
            *("--dist=loadfile", "-p", "no:cacheprovider", "-p", "benchmark"),
            "--kernelprof-device=cpu",
            *together.arguments,
            plugins=[seen],
        )
    failed = any(report["outcome"] == "failed" for report in seen.reports)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK)
    (folder / _SEEN).write_bytes(execnet.dumps((seen.reports, seen.warnings)))


def show(pytester: pytest.Pytester, folder: Path, number: int, project: Project) -> Shown:
    """What was seen of one project of a run, as a file "test_it.py" of its own."""
    reports, warned = execnet.loads((folder / _SEEN).read_bytes())
    file = _file_of(number)
    for trace in folder.glob(f"traces/{file}*"):
        (pytester.path / "traces").mkdir(exist_ok=True)
        shutil.copy(trace, pytester.path / "traces" / trace.name.replace(file, "test_it.py"))
    names = {str(folder / file): str(pytester.path / "test_it.py"), file: "test_it.py"}
    # What a worker says of all tests of its run with its first report is for each project its own.
    expected: dict[str, Any] = {}
    for one in reports:
        expected |= json.loads(one.pop(EXPECTED_ATTRIBUTE, "{}"))
    own = [one for one in reports if one["nodeid"].startswith(file)]
    of_file = {test: told for test, told in expected.items() if test.startswith(file)}
    own[0][EXPECTED_ATTRIBUTE] = json.dumps(of_file)
    return Shown(
        [_renamed(one, names) for one in own],
        [_renamed(one, names) for one in warned if one["nodeid"].startswith(file)],
    )


def _file_of(number: int) -> str:
    return f"test_it_{number:02}.py"


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    if isinstance(value, (list, tuple)):
        return type(value)(_renamed(one, names) for one in value)
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    return value


class Seen:
    """A plugin of the controller: keeps what the workers sent."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        del data["node"]  # the controller's own: the worker that sent it
        self.reports.append(data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        category = warning_message.category
        self.warnings.append(
            {
                "nodeid": nodeid,
                "when": when,
                "text": str(warning_message.message),
                "category": (category.__module__, category.__name__),
                "place": (warning_message.filename, warning_message.lineno),
            }
        )


class Shown:
    """A plugin of a pytest that runs nothing: hands it what was seen."""

    def __init__(self, reports: list[dict[str, Any]], warned: list[dict[str, Any]]) -> None:
        self._reports = reports
        self._warned = warned

    def pytest_collection(self, session: pytest.Session) -> bool:
        session.testscollected = len({report["nodeid"] for report in self._reports})
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        config, hook = session.config, session.config.hook
        for data in self._reports:
            report = hook.pytest_report_from_serializable(config=config, data=data)
            hook.pytest_runtest_logreport(report=report)
        for one in self._warned:
            module, name = one["category"]
            category = getattr(importlib.import_module(module), name)
            message = warnings.WarningMessage(category(one["text"]), category, *one["place"])
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "when": one["when"],
                    "nodeid": one["nodeid"],
                    "location": None,
                }
            )
        return True


class Wire:
    """A plugin of a run without workers: its reports, too, go the way that xdist sends them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config, hook = self._config, self._config.hook
        sent = hook.pytest_report_to_serializable(config=config, report=report)
        data = execnet.loads(execnet.dumps(sent))
        received = hook.pytest_report_from_serializable(config=config, data=data)
        assert type(received) is type(report)
        vars(report).clear()
        vars(report).update(vars(received))
