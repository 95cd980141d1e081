"""The pytest that runs tests on the baseline's code, as the process with the user's code asks."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_kernelprof import keep_our_assertions
from pytest_kernelprof.baselines import code_origin, protocol, worker
from pytest_kernelprof.errors import LimitExceeded
from pytest_kernelprof.gpu import inventory, usage_lock
from pytest_kernelprof.plugin import hooks as _hooks  # noqa: F401 (which pytest would rewrite)
from pytest_kernelprof.plugin.collector import ATTRIBUTE, why_ended
from pytest_kernelprof.plugin.items import run_state, state_of
from pytest_kernelprof.profiler.unprofiled_rounds import seed_by
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Test
from pytest_kernelprof.records.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_kernelprof.plugin.measuring import MeasuredCall, MeasuredTest


_NO_REASON = "no reason given"
_BY_LIMIT = "kernelprof_by_limit"


def main(arguments: list[str]) -> None:
    """Run pytest as the user's process asks, over the two descriptors of the first argument."""
    wire = protocol.Wire.of_a_child(arguments[0])
    # Before all others, so that it runs last: what is left then, Python's own end, changes nothing.
    atexit.register(wire.close)
    try:
        if isinstance(launch := wire.receive(), protocol.Launch):
            _run(wire, launch)
    except protocol.Lost:  # the user's process is gone, so nobody would read why
        sys.exit(1)


def _run(wire: protocol.Wire, launch: protocol.Launch) -> None:
    code = code_origin.RightCode(launch)
    if why := code.bring_in_reach():
        wire.send(protocol.Refused(why))
        return
    os.makedirs(launch.cwd, exist_ok=True)  # the revision may lack that folder
    os.chdir(launch.cwd)
    has_cov = bool(inventory.installed_version("pytest-cov"))  # another environment may lack it
    arguments = [one for one in launch.arguments if has_cov or one != "--no-cov"]
    sys.argv = ["pytest", *arguments]
    served = Served(wire, code, launch.seed)
    status = pytest.main(arguments, plugins=[served])
    if not served.is_ready:
        lacks = launch.python and status == pytest.ExitCode.USAGE_ERROR
        hint = "; does its environment lack a plugin of pytest?" if lacks else ""
        why = f"pytest does not start in the baseline (status {int(status)}{hint})"
        wire.send(protocol.Refused(why, printed=True))


class Served:
    """The plugin of such a pytest.

    Attributes:
        is_ready: whether pytest has started, so that it can collect.
    """

    def __init__(self, wire: protocol.Wire, code: code_origin.RightCode, seed: int | None) -> None:
        self._wire, self._code, self._seed = wire, code, seed
        self._asked = protocol.RunTest()
        self._collect = protocol.Collect()
        self._files: set[str] = set()
        self._shared: tuple[str, ...] = ()
        self._errors: dict[str, str] = {}
        self._reached: dict[str, set[str]] = {}
        self._done = protocol.Done()
        self.is_ready = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Reset options before other plugins read them: reports and selections are the user's."""
        keep_our_assertions()  # this package was imported before pytest asked for it
        state = run_state(config)
        state.serves, state.after_call = True, self._after_call
        for name, value in worker.RESET.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        if self._seed is not None and hasattr(config.option, "randomly_seed"):
            config.option.randomly_seed = self._seed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the files that the user's process names, all at once."""
        self.is_ready = True
        self._wire.send(protocol.Collected(cuda=inventory.cuda_is_up()))
        asked: protocol.Collect = self._wire.receive()
        if ahead := not asked.files:
            with contextlib.suppress(pytest.UsageError):  # the revision may lack what is named
                session.perform_collect()
        else:
            self._collect = asked
            session.perform_collect([*filter(os.path.exists, asked.files)])
        there = {*filter(os.path.exists, self._collect.files)}
        why = self._code.wrong(list(sys.modules.items()))
        if ahead and (why or not there or not self._files.issuperset(there)):
            pytest.exit("other files have to be collected, in another process")
        if why:
            self._wire.send(protocol.Refused(why))
            return True
        self._files |= {*there, *(str(one.__file__) for one in _plugins(session.config))}
        self._shared = self._code.origins.shared_with(self._files)
        ids = tuple(item.nodeid for item in session.items)
        cuda = inventory.cuda_is_up()
        self._wire.send(protocol.Collected(ids, self._errors, cuda, self._shared))
        return True

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Note the file."""
        self._files.add(str(collector.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the files that the user's process names, once it has collected too, and
        mark those that are measured because the user's code has snapshots of them."""
        if not self._collect.files:
            self._collect = self._wire.receive()
            files = frozenset(self._collect.files)
            items[:] = [item for item in items if str(item.path) in files]
        for item in items:
            state_of(item).in_snapshots = item.nodeid in self._collect.kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what fails."""
        if report.failed:
            self._errors[report.nodeid] = why_ended(report) or _NO_REASON

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests that the user's process names, until it names no more."""
        items = {item.nodeid: item for item in session.items}
        while isinstance(asked := self._wire.receive(), protocol.RunTest) and asked.id:
            item, following = items[asked.id], items.get(asked.next)
            before = set(sys.modules)
            self._done, self._asked = protocol.Done(asked.id), asked
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            new = [one for name, one in list(sys.modules.items()) if name not in before]
            if new:
                self._shared = self._code.origins.shared_with(self._files)
            done = replace(
                self._done,
                reached=self._reach(item, new),
                wrong=self._code.wrong((module.__name__, module) for module in new),
                opened=self._code.reads.taken(),
                lines=self._code.lines_of_today(self._done.test),
                shared=self._shared,
            )
            self._wire.send(done)
        if isinstance(asked, protocol.RunTest):
            self._wire.send(protocol.Done())
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin an attempt of a test; of a repeated test the last attempt counts."""
        self._done = protocol.Done(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The same random numbers as on the other side."""
        seed_by(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark failures by a limit: limits do not count on the baseline."""
        report = yield
        # On the report, because plugins that repeat tests publish reports after the test.
        by_limit = call.excinfo is not None and call.excinfo.errisinstance(LimitExceeded)
        setattr(report, _BY_LIMIT, by_limit)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the profiles of the test and its outcome."""
        if (sent := report.__dict__.pop(ATTRIBUTE, None)) is not None:
            taken = codec.decode(sent.encode(), Test)
            before = self._done.test.profiles if self._done.test else ()
            taken = replace(taken, profiles=(*before, *taken.profiles))
            self._done = replace(self._done, test=taken)
        by_limit = getattr(report, _BY_LIMIT, False)
        if report.skipped and not by_limit:
            why = "it fails as expected (xfail)" if hasattr(report, "wasxfail") else ""
            self._done = replace(self._done, skipped=why or why_ended(report) or _NO_REASON)
        passed = isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS")
        if report.failed and report.when != "teardown" and not (by_limit or passed):
            self._done = replace(self._done, failure=why_ended(report) or _NO_REASON)

    def _after_call(self, test: MeasuredTest, call: MeasuredCall) -> None:
        """Hold in a call whose kernels can be timed, and take rounds of it as asked. A process that
        holds is at rest for the GPU's lock."""
        is_wanted = self._asked.holds and self._asked.call in (None, call.profile.label)
        if not is_wanted or call.more.why_untimed():
            return
        from pytest_kernelprof.plugin.ledger import without_kernels

        work = call.more.work(call.result)
        usage_lock.stop()
        numbers = codec.encode(replace(without_kernels(call.profile), timeline=None))
        profile = codec.decode(numbers, Profile)  # without what is no text
        self._wire.send(protocol.At(profile.label, work, inventory.cuda_is_up(), profile))
        asked = protocol.serve(self._wire, call.more)
        if not isinstance(asked, protocol.Go):  # the run ends, and with it this test
            pytest.exit("the run against a revision ends")
        self._asked = replace(self._asked, holds=asked.holds)
        usage_lock.go_on()

    def _reach(self, item: pytest.Item, new: list[ModuleType]) -> tuple[str, ...]:
        """The revision's files that a test uses. What one test loads while it runs counts for all
        later tests of its file."""
        of_file = self._reached.setdefault(str(item.path), set())
        start = [*filter(None, [getattr(item, "module", None)])]
        start += item.config.pluginmanager._getconftestmodules(item.path)
        # Any test may use a fixture of pytest_plugins, but a conftest belongs to its folder.
        start += [one for one in _plugins(item.config) if "conftest.py" not in str(one.__file__)]
        of_file.update(self._code.origins.reached([*start, *new]))
        return tuple(sorted(of_file))


def _plugins(config: pytest.Config) -> list[ModuleType]:
    """Conftests, those of ``pytest_plugins`` and of ``-p``, and those that are installed."""
    return [one for one in config.pluginmanager.get_plugins() if isinstance(one, ModuleType)]
