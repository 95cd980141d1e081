"""A revision is laid out in a folder of our own, and nothing of the user's is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import AUTHOR, Repository, everything

from pytest_kernelprof.baselines import revision
from pytest_kernelprof.baselines.revision import CannotCompare, Revision, find, lay_out


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    made = Repository(tmp_path / "project")
    made.commit({"pkg/mlp.py": "old = 1", "pkg/gone.py": "", "README.md": "old"})
    (made.folder / "pkg" / "gone.py").unlink()
    made.commit({"pkg/mlp.py": "new = 1"})
    made.write({"pkg/mlp.py": "today = 1", "untracked.py": ""})
    return made


def found(repository: Repository, given: str) -> Revision:
    return find(given, str(repository.folder), str(repository.folder))


def laid_out(reference: Revision, folder: Path) -> tuple[Path, tuple[str, ...]]:
    tree, scratch = folder / "tree", folder / "scratch"
    tree.mkdir()
    scratch.mkdir()
    return tree, lay_out(reference, tree, scratch)


@pytest.mark.parametrize(
    ("given", "held"),
    [("main", "new = 1"), ("HEAD~1", "old = 1"), ("merge-base:side", "old = 1"), ("v1", "old = 1")],
)
def test_the_files_of_a_revision_are_laid_out(
    repository: Repository, tmp_path: Path, given: str, held: str
) -> None:
    repository.git("tag", "--annotate", "--message=x", "v1", "HEAD~1")
    repository.git("branch", "side", "HEAD~1")
    tree, notes = laid_out(found(repository, given), tmp_path)
    assert (tree / "pkg" / "mlp.py").read_text() == held
    assert not (tree / "untracked.py").exists()
    assert (tree / "pkg" / "gone.py").exists() == (held == "old = 1")
    assert notes == ()


def test_a_commit_is_found_by_words_of_its_message(repository: Repository) -> None:
    commit = repository.git("commit-tree", "-m", "faster rows", "HEAD^{tree}")
    repository.git("branch", "side", commit)
    assert found(repository, ":/faster").commit == commit


def test_it_is_told_with_its_short_name(repository: Repository) -> None:
    commit = repository.git("rev-parse", "HEAD")
    assert found(repository, "main").name == f"main ({commit[:7]})"
    assert found(repository, commit[:9]).name == commit[:7]
    assert found(repository, "main").commit == commit


def test_nothing_of_the_users_is_written(repository: Repository, tmp_path: Path) -> None:
    repository.git("config", "core.splitIndex", "true")
    repository.git("config", "core.hooksPath", str(repository.folder / "hooks"))
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = repository.folder / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch ran\n")
        hook.chmod(0o755)
    (repository.folder / "README.md").write_text("a stat that the index does not have")
    before = repository.everything()
    laid_out(found(repository, "HEAD~1"), tmp_path)
    revision.files_of(str(repository.folder))
    assert repository.everything() == before


def test_a_read_only_git_folder_will_do(repository: Repository, tmp_path: Path) -> None:
    repository.git("pack-refs", "--all")
    folders = [repository.folder / ".git", *(repository.folder / ".git").rglob("*")]
    for path in folders:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        tree, _ = laid_out(found(repository, "main"), tmp_path)
    finally:
        for path in folders:
            path.chmod(path.stat().st_mode | 0o200)
    assert (tree / "README.md").exists()


def test_inside_the_hook_of_a_commit_it_leaves_that_commit_alone(
    repository: Repository, tmp_path: Path
) -> None:
    hook = repository.folder / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    package = Path(revision.__file__).parents[2]
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(package)!r});"
        "from pytest_kernelprof.baselines.revision import find, lay_out;"
        f"at = pathlib.Path({str(tmp_path)!r});"
        "lay_out(find('HEAD~1', '.', '.'), at / 'tree', at / 'scratch')"
    )
    hook.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    hook.chmod(0o755)
    repository.git("commit", "--quiet", "--all", "--message=today")
    assert (tmp_path / "tree" / "pkg" / "mlp.py").read_text() == "old = 1"
    assert repository.git("show", "HEAD:pkg/mlp.py") == "today = 1"
    assert repository.git("status", "--porcelain") == "?? untracked.py"
    assert repository.git("ls-tree", "-r", "--name-only", "HEAD").split() == [
        *("README.md", "pkg/mlp.py"),
    ]


def test_the_folder_of_another_checkout_is_taken_as_it_stands(
    repository: Repository, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "pkg").mkdir(parents=True)
    (other / "pkg" / "mlp.py").write_text("other = 1")
    (other / "built.so").write_text("generated, and in no repository")
    (other / "env").mkdir()
    (other / "env" / "pyvenv.cfg").touch()
    os.mkfifo(other / "pipe")
    before = everything(other / "pkg")
    reference = found(repository, "../other")
    tree, _ = laid_out(reference, tmp_path)
    assert (reference.name, reference.commit) == ("../other", "")
    assert (tree / "pkg" / "mlp.py").read_text() == "other = 1"
    assert sorted(path.name for path in tree.iterdir()) == ["built.so", "pkg"]
    assert everything(other / "pkg") == before


def test_without_git_the_folder_stands_beside_the_root_folder(tmp_path: Path) -> None:
    for name in ("project", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mlp.py").touch()
    reference = find("../other", str(tmp_path / "project"), str(tmp_path / "project"))
    assert reference.root == str(tmp_path / "project")


def test_a_folder_around_the_one_that_stands_for_the_root_folder_is_refused(tmp_path: Path) -> None:
    for name in ("new/project", "old/project"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "mlp.py").touch()
    root, old = str(tmp_path / "new" / "project"), str(tmp_path / "old")
    with pytest.raises(
        CannotCompare,
        match=f"no file or folder with the name of one in {root}: .*, as '{old}/pro",
    ):
        find(old, root, root)
    assert find(f"{old}/project", root, root).folder == f"{old}/project"


def test_a_root_folder_below_the_repositorys_maps_the_whole(repository: Repository) -> None:
    reference = find("main", str(repository.folder / "pkg"), str(repository.folder))
    assert reference.root == str(repository.folder)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("no-such", "there is no revision 'no-such' in .*: git fetch .*no-such"),
        ("merge-base:no-such", "no revision 'no-such' .* which 'merge-base:no-such' asks for"),
        ("-x", "expected a revision, for example main or HEAD~1, or a folder"),
        ("./no-such", "there is no revision"),
        (".", "is the code that is tested"),
        ("HEAD:README.md", "there is no revision .*, nor a folder of that name$"),
        (
            ":/no such words",
            "there is no revision ':/no such words' .*, nor a folder of that name$",
        ),
        ("merge-base:other", "HEAD and 'other' have no common ancestor here"),
    ],
)
def test_what_it_cannot_be_is_told_with_the_remedy(
    repository: Repository, given: str, words: str
) -> None:
    tree = repository.git("write-tree")
    repository.git("branch", "other", repository.git("commit-tree", "-m", "x", tree))
    with pytest.raises(CannotCompare, match=words):
        found(repository, given)


def test_a_name_that_is_both_is_refused(repository: Repository) -> None:
    repository.git("branch", "pkg")
    with pytest.raises(CannotCompare, match=r"is a revision and a folder: write \./pkg .*, or "):
        found(repository, "pkg")
    (repository.folder / "other" / "pkg").mkdir(parents=True)
    assert found(repository, "other").folder == str(repository.folder / "other")


def test_in_a_shallow_clone_the_fetch_is_told(repository: Repository, tmp_path: Path) -> None:
    clone = f"file://{repository.folder}"
    subprocess.run(["git", *AUTHOR, "clone", "-q", "--depth=1", clone, tmp_path / "c"], check=True)
    for given, how in (
        ("HEAD~1", "git fetch"),
        ("origin/side", "refs/remotes/origin/side"),
        (":/words", "git fetch --unshallow origin$"),
    ):
        with pytest.raises(CannotCompare, match=f"shallow clone: .*{how}"):
            find(given, str(tmp_path / "c"), str(tmp_path))


def test_in_a_partial_clone_nothing_is_fetched_and_the_fetch_is_told(
    repository: Repository, tmp_path: Path
) -> None:
    repository.git("config", "uploadpack.allowFilter", "true")
    source, clone = f"file://{repository.folder}", tmp_path / "c"
    subprocess.run(["git", "clone", "-q", "--filter=blob:none", source, clone], check=True)
    before = everything(clone)
    with pytest.raises(CannotCompare, match="partial clone, which lacks files of it: git fetch "):
        laid_out(find("HEAD~1", str(clone), str(clone)), tmp_path)
    assert everything(clone) == before


def test_a_linked_worktree_and_a_sparse_checkout_have_all_files(
    repository: Repository, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", "--detach", str(linked))
    subprocess.run(["git", "sparse-checkout", "set", "nothing"], cwd=linked, check=True)
    assert not (linked / "pkg").exists()
    before = everything(linked), repository.everything()
    reference = find("HEAD~1", str(linked), str(linked))
    tree, _ = laid_out(reference, tmp_path)
    assert reference.root == str(linked)
    assert (tree / "pkg" / "mlp.py").read_text() == "old = 1"
    assert (everything(linked), repository.everything()) == before


def test_without_a_repository_or_git_it_says_so(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotCompare, match="not in a git repository that has it: give the folder"):
        find("main", str(tmp_path), str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotCompare, match=r"git cannot be run \(.*: install it, or give"):
        found(repository, "main")


def test_a_repository_that_git_does_not_trust_has_gits_remedy(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(CannotCompare, match=r"(?s)dubious ownership.*git config .*safe\.directory"):
        found(repository, "main")


def test_empty_submodules_and_lfs_pointers_are_told(repository: Repository, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (repository.folder / ".gitattributes").write_text("*.bin filter=lfs\n")
    commit = repository.git("rev-parse", "HEAD")
    repository.git("config", "filter.lfs.clean", "cat")
    repository.git("config", "filter.lfs.smudge", "echo fetched")
    repository.write({"weights.bin": pointer})
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},third/party")
    repository.git("commit", "--quiet", "--message=x")
    tree, notes = laid_out(found(repository, "HEAD"), tmp_path)
    assert (tree / "weights.bin").read_text() == pointer
    assert notes == (
        "submodules are empty in the baseline: third/party",
        "files of git LFS are pointers in the baseline: weights.bin",
    )
