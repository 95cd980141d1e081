"""The option --kernelprof-github: the summary of the step, and annotations that stand by themselves
at the end of what pytest prints."""

from __future__ import annotations

import re
import subprocess
import types
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]
GITHUB = "--kernelprof-github"
BROKEN = """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile):
    print("in the middle", end="")
    kernel_profile(three)
"""


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> Path:
    """The step's, with the project as the repository."""
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path.parent))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    return path


@pytest.mark.project(BROKEN, GITHUB)
def test_lines_are_annotated_and_the_summary_is_written(
    summary: Path, result: pytest.RunResult, pytester: pytest.Pytester
) -> None:
    (command,) = [line for line in result.outlines if line.startswith("::")]
    project = re.escape(pytester.path.name)
    assert re.fullmatch(
        rf"::error file={project}/test_it\.py,line=\d+,"
        r"title=kernelprof%3A max_kernels%3A 3 > limit 1 \(test_broken\)::.*",
        command,
    )
    assert result.outlines[-1] == command  # after all that pytest prints
    assert "### ❌ kernelprof: 1 of 1 test breaks a limit" in summary.read_text()


@pytest.mark.parametrize("options", [("-s",), ("-qq", "--no-summary")])
@pytest.mark.usefixtures("summary")
def test_however_little_pytest_prints_they_are_there(run: Run, options: tuple[str, ...]) -> None:
    result = run(BROKEN, GITHUB, *options)
    assert sum(line.startswith("::error ") for line in result.outlines) == 1


@pytest.mark.parametrize("warns", [True, False])
@pytest.mark.usefixtures("summary")
def test_what_the_plugin_for_annotations_does_is_not_done_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch, warns: bool
) -> None:
    other = types.ModuleType("pytest_github_actions_annotate_failures")

    class Registers:
        def pytest_configure(self, config: pytest.Config) -> None:
            config.pluginmanager.register(other, other.__name__)
            if warns:
                config.pluginmanager.register(object(), "annotate_warnings")

    result = run(BROKEN, GITHUB, plugins=[Registers()])
    assert not [line for line in result.outlines if line.startswith("::")]
    result = run(BROKEN, GITHUB, "--kernelprof-warn-only", plugins=[Registers()])
    found = [line for line in result.outlines if line.startswith("::")]
    assert [line.partition(" ")[0] for line in found] == ([] if warns else ["::warning"])
    monkeypatch.delenv("GITHUB_ACTIONS")  # without it that plugin does nothing
    result = run(BROKEN, GITHUB, plugins=[Registers()])
    assert [line for line in result.outlines if line.startswith("::error ")]


MANY = """
@pytest.mark.max_kernels(150)
def test_many(kernel_profile):
    def work():
        for _ in range(100):
            x + 1
        for _ in range(100):
            x * 2
    kernel_profile(work)
"""
AT_MORE_LINES = MANY.replace(
    "    kernel_profile(work)", "        x - 3\n        x / 4\n    kernel_profile(work)"
)


@pytest.mark.parametrize("source", [MANY, AT_MORE_LINES], ids=["few", "more"])
@pytest.mark.usefixtures("summary")
def test_where_no_one_knows_which_kernels_are_too_many_few_lines_or_the_call_are_annotated(
    run: Run, pytester: pytest.Pytester, source: str
) -> None:
    user = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    for arguments in (["init", "-q"], [*user, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *arguments], cwd=pytester.path, check=True)
    (command,) = [line for line in run(source, GITHUB).outlines if line.startswith("::")]
    code = (pytester.path / "test_it.py").read_text().splitlines()
    call, line = (code.index(one) + 1 for one in ("    kernel_profile(work)", f"{' ' * 12}x + 1"))
    known, counted = source == MANY, 200 if source == MANY else 202
    places = f"line={line if known else call}"
    title = f"kernelprof%3A max_kernels%3A {counted} > limit 150 (test_many)"
    more = f"%0Aaten::mul x100 at test_it.py:{line + 2}%0A" if known else "; 3 others%0A"
    assert (
        f"test_it.py,{places},title={title}::aten::add x100 at test_it.py:{line}{more}"
    ) in command
    todo = "%0Ato do: call fewer operators%0Arerun: pytest "
    marker = code.index("@pytest.mark.max_kernels(150)") + 1
    assert command.endswith(
        f"{todo}test_it.py::test_many --kernelprof-device=cpu%0A"
        f"if intended, allow max_kernels({counted}) at test_it.py:{marker}"
    )


def test_outside_of_github_the_run_says_so_and_fails_by_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = run("def test_it(kernel_profile): kernel_profile(three)\n", GITHUB)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["kernelprof: --kernelprof-github: there is no step summary: GITHUB_STEP_SUMMARY is *"]
    )
