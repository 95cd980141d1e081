"""The hooks that this plugin calls, for conftest.py files and other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_kernelprof.schema.run import Profile, Run


def pytest_kernelprof_profile(item: pytest.Item, profile: Profile) -> None:
    """A test has taken a profile: called as its call ends, in the process that ran it.

    Args:
        profile: the record with its metrics, kernels and verdicts so far; whoever wants to keep it
            may, it is frozen and holds no trace.
    """


def pytest_kernelprof_run(config: pytest.Config, run: Run) -> None:
    """The run ends, however: called once, in the process that reports, before its last lines.

    Only a hook of a plugin or of the ``conftest.py`` files that pytest loads at its start is seen.
    Where there is one, as much is measured as for ``--kernelprof-json``.

    Args:
        run: all tests that took something, as ``--kernelprof-json`` keeps them.
    """
