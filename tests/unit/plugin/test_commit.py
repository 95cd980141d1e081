"""Which commit a run is of, as git says it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_kernelprof.plugin.run_record import commit_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(folder), *named, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    found.mkdir()
    git(found, "init", "--quiet", "--initial-branch=main")
    git(found, "commit", "--quiet", "--allow-empty", "-m", "first")
    return found


def test_it_is_that_of_a_branch_however_git_keeps_it(repository: Path) -> None:
    inside = repository / "tests"
    inside.mkdir()
    head = git(repository, "rev-parse", "HEAD")
    assert commit_of(str(repository)) == commit_of(str(inside)) == head
    git(repository, "pack-refs", "--all")
    assert commit_of(str(repository)) == head


def test_it_is_that_of_a_detached_head_and_of_a_worktree(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "--quiet", "--allow-empty", "-m", "second")
    second = git(tmp_path / "other", "rev-parse", "HEAD")
    assert (commit_of(str(repository)), commit_of(str(tmp_path / "other"))) == (first, second)
    git(repository, "checkout", "--quiet", "--detach", second)
    assert commit_of(str(repository)) == second


def test_without_a_commit_there_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert commit_of(str(tmp_path)) == ""
    (tmp_path / ".git" / "HEAD").write_text("what is this")
    assert commit_of(str(tmp_path)) == ""
