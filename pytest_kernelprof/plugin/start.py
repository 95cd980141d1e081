"""What a run begins with: its settings, those who gather what tests take, those who remember."""

from __future__ import annotations

import os
from functools import partial

import pytest

from pytest_kernelprof.limits.marks import marker_lines
from pytest_kernelprof.plugin.collect import Collector
from pytest_kernelprof.plugin.concerns import BRIDGE, is_active, is_measured, is_shown
from pytest_kernelprof.plugin.end_notes import EndNotes
from pytest_kernelprof.plugin.keys import (
    BASELINE_OF,
    COLLECTOR,
    QUIET,
    RUN_BASELINE,
    RUN_RECORD,
    SERVES,
    SETTINGS,
)
from pytest_kernelprof.plugin.options import MARKER_LINE
from pytest_kernelprof.plugin.run_record import RunRecord, is_hooked
from pytest_kernelprof.plugin.settings import Settings, of_a_reference, quiet, read_settings


def begin_run(config: pytest.Config) -> None:
    """Read the settings, and register who takes part in the run.

    Raises:
        pytest.UsageError: an option asks for what cannot be had.
    """
    settings = _with_baselines(config, read_settings(config))
    if SERVES in config.stash:  # what is reported, and what fails, is the other run's
        settings = of_a_reference(settings)
    config.stash[SETTINGS] = settings
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _begin_rank(config)
        settings = config.stash[SETTINGS]
    if settings.spread_workers and hasattr(config, "workerinput"):
        from pytest_kernelprof.device.allocation import spread_workers

        spread_workers(config)
    if is_active(config):
        from pytest_kernelprof.plugin.benchmark import Bridge

        config.pluginmanager.register(Bridge(settings), BRIDGE)
    if settings.trace_dir:
        # Relative to where pytest was started: tests may change their directory.
        folder = os.path.join(config.invocation_params.dir, settings.trace_dir)
        _refuse_unwritable(folder)
        config.stash[SETTINGS] = settings._replace(trace_dir=folder)
    config.stash[COLLECTOR] = collector = Collector()
    if not hasattr(config, "workerinput"):  # what a worker took is for its controller
        config.pluginmanager.register(collector, "kernelprof-collector")
    config.pluginmanager.register(EndNotes(), "kernelprof-end-notes")
    if SERVES not in config.stash:  # what a reference took is for its candidate
        _begin_what_remembers(config, collector)
    if settings.all and not settings.disable and settings.device != "cpu":
        from pytest_kernelprof.plugin.whole_call import BringUp

        config.pluginmanager.register(BringUp(), "kernelprof-bring-up")
    for line in marker_lines(MARKER_LINE):
        config.addinivalue_line("markers", line)
    # Read by torch when it is loaded, which test modules do before anything is measured: quiet
    # profiler logs, and compiled CPU graphs that show their kernels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE", "1")


def _with_baselines(config: pytest.Config, settings: Settings) -> Settings:
    """The settings with what is compared with, by its kind.

    Raises:
        pytest.UsageError: there are two of one kind.
    """
    given = settings.against
    if SERVES in config.stash:  # run documents are the other run's concern
        return settings._replace(revision=next(iter(given), None))
    documents = [one for one in given if _is_run_document(config, one)]
    others = [one for one in given if one not in documents]
    for several, what, other in (
        (documents, "run documents", "revision or folder"),
        (others, "revisions or folders", "run document"),
    ):
        if len(several) > 1:
            raise pytest.UsageError(
                f"--kernelprof-against: got two {what}, {several[0]!r} and {several[1]!r} "
                f"(addopts count too); give one, and with it at most one {other}"
            )
    return settings._replace(
        revision=next(iter(others), None), run_document=next(iter(documents), None)
    )


def _is_run_document(config: pytest.Config, given: str) -> bool:
    """Whether it is a file, and not a revision whose name a file without the ending .json has. In
    a worker, whose files may be others, it is what the controller says."""
    if hasattr(config, "workerinput"):
        return bool(given == config.workerinput.get(RUN_BASELINE, ("",))[0])
    path = os.path.join(config.invocation_params.dir, given)
    is_named_so = given.endswith((".json", ".json.gz"))
    if os.path.isdir(path) or not (is_named_so or os.path.isfile(path)):
        return False
    return (is_named_so and os.path.isfile(path)) or not _is_revision(config, given)


def _is_revision(config: pytest.Config, given: str) -> bool:
    from pytest_kernelprof.against.revision import GitError, git

    try:
        git(str(config.rootpath), "rev-parse", "--verify", "--quiet", given)
    except GitError:
        return False
    return True


def refuse_workers_of_ranks(config: pytest.Config) -> None:
    """Where torchrun's ranks share their tests out to workers, those of one would meet others'.

    Raises:
        IncompleteProfile: this is such a worker.
    """
    if hasattr(config, "workerinput") and "TORCHELASTIC_RUN_ID" in os.environ:
        from pytest_kernelprof.errors import IncompleteProfile
        from pytest_kernelprof.plugin.torchrun import why_no_worker

        why = why_no_worker(config)
        if why:
            raise IncompleteProfile(why)


def _begin_rank(config: pytest.Config) -> None:
    """This process is one of those that torchrun has started.

    Raises:
        pytest.UsageError: what is asked for cannot be had of several ranks.
    """
    from pytest_kernelprof.plugin import torchrun
    from pytest_kernelprof.plugin.rank_place import place_of_rank

    place = place_of_rank() if torchrun.takes_part(config) else None
    if place is None:
        return
    settings = config.stash[SETTINGS]
    if settings.revision:
        raise pytest.UsageError(
            "--kernelprof-against: code on several ranks cannot be compared with a revision; run "
            "without torchrun, or compare with an earlier run, --kernelprof-against=RUN.json"
        )
    if place.rank:
        config.stash[SETTINGS] = quiet(settings)
        config.stash[QUIET] = True
    kind = torchrun.QuietRank if place.rank else torchrun.FirstRank
    config.pluginmanager.register(kind(config, place), torchrun.PLUGIN)


def _begin_what_remembers(config: pytest.Config, collector: Collector) -> None:
    """Run documents, snapshots, and the run on a revision's code."""
    settings = config.stash[SETTINGS]
    if not hasattr(config, "workerinput"):
        _register_readers_of_the_run(config, collector)
    if not settings.disable:
        from pytest_kernelprof.plugin.snapshots import begin

        begin(config, settings, collector)
    elif settings.against:
        raise pytest.UsageError(
            "--kernelprof-against: nothing is measured with --kernelprof-disable, so nothing "
            "would be compared; remove one of the two"
        )
    if settings.run_document:
        from pytest_kernelprof.plugin import run_baseline

        found = run_baseline.begin(config, settings, collector, RUN_BASELINE)
        config.stash[BASELINE_OF] = found.of
    if settings.revision:
        from pytest_kernelprof.plugin import against

        against.begin(config, settings, collector, partial(is_measured, config))


def _register_readers_of_the_run(config: pytest.Config, collector: Collector) -> None:
    """Those who want all of it as it ends."""
    asked = config.stash[SETTINGS].run_files
    if asked:
        from pytest_kernelprof.plugin.run_files import RunFiles

        config.pluginmanager.register(RunFiles(config, asked), "kernelprof-run-files")
    if config.stash[SETTINGS].github:
        from pytest_kernelprof.plugin.github import GitHub

        config.pluginmanager.register(GitHub(config), "kernelprof-github")
    if is_hooked(config) or is_shown(config) or config.stash[SETTINGS].against:
        config.pluginmanager.register(RunRecord(config, collector), RUN_RECORD)


def _refuse_unwritable(folder: str) -> None:
    """Say at the start that the traces would be lost, not at the first of them.

    Raises:
        pytest.UsageError: nothing can be written to the folder, with the reason.
    """
    from pytest_kernelprof.report.files import why_unwritable

    why = why_unwritable(folder)
    if why:
        raise pytest.UsageError(
            f"--kernelprof-trace-dir: {folder!r} cannot be created or written to ({why})"
        )
