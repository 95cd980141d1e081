"""The run as a record, for whoever wants all of it: gathered until it ends, however it ends."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_kernelprof.plugin.collect import Collector
    from pytest_kernelprof.schema.run import Run


def is_hooked(config: pytest.Config) -> bool:
    """Whether anybody implements ``pytest_kernelprof_run``."""
    return bool(config.hook.pytest_kernelprof_run.get_hookimpls())


class RunRecord:
    """What ended the run, beside what its tests took; in the process that reports."""

    def __init__(self, config: pytest.Config, collector: Collector) -> None:
        self._config = config
        self._collector = collector
        self._began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._unfinished: list[str] = []

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C, ``pytest.exit``, errors of collection, a plugin that stops the run."""
        words = str(excinfo.value)
        self._unfinished.append(f"interrupted: {words}" if words else "interrupted")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """A plugin has failed."""
        self._unfinished.append(f"internal error of pytest: {excinfo.exconly(tryshort=True)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of pytest-xdist is gone; what its running test took went with it."""
        if error:
            name = getattr(getattr(node, "gateway", None), "id", "?")
            self._unfinished.append(f"worker {name} ended early: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """All reports are in: hand the record to those who wait for it."""
        if session.shouldfail:  # --maxfail
            self._unfinished.append(str(session.shouldfail))
        self._config.hook.pytest_kernelprof_run(config=self._config, run=self._record())

    def _record(self) -> Run:
        from pytest_kernelprof.plugin.portable import portable
        from pytest_kernelprof.schema.run import Run

        root = str(self._config.rootpath)
        return Run(
            tuple(portable(test, root) for test in self._collector.tests()),
            began=self._began,
            versions={name: version(name) for name in ("pytest", "pytest-kernelprof")},
            unfinished=tuple(dict.fromkeys(self._unfinished)),
        )
