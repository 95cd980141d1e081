"""The option --kernelprof-against in projects of many kinds: how they are installed, what they
generate and read, what their snapshots allow, another environment's Python."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository, everything
from setuptools.command import editable_wheel

from pytest_kernelprof.baselines import supervisor
from pytest_kernelprof.baselines.snapshots import path_of, update
from pytest_kernelprof.baselines.supervisor import make_folder
from pytest_kernelprof.records.comparison import KeptProfile, KeptTest

Run = Callable[..., pytest.RunResult]

OLD = "def f(x): return x + 1\n"
NEW = "def f(x): return (x + 1) * 2\n"
NOW = ("aten::add", "aten::mul")


@pytest.fixture(autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's runs, and of nobody else's."""
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.setattr(supervisor, "make_folder", partial(supervisor.make_folder, str(folder)))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("COLUMNS", "160")
    return folder


@pytest.fixture
def against(pytester: pytest.Pytester) -> Run:
    usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
    return partial(pytester.runpytest_inprocess, *usual, "--kernelprof-against=main")


def told(result: pytest.RunResult) -> list[str]:
    """The lines of the section, without their padding."""
    lines = [" ".join(line.split()) for line in result.outlines]
    at = next(i for i, line in enumerate(lines) if "profiles against main (" in line)
    return lines[at + 1 :]


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    return Repository(pytester.path)


TESTS = """
import torch
from pkg import mlp
from model import own
x = torch.ones(4)
def test_accepted(kernel_profile): kernel_profile(mlp.f, x)
def test_accepted_of_the_whole_call(): mlp.f(x)
def test_not_in_its_snapshot(kernel_profile):
    kernel_profile(mlp.f, x)
def test_reads(kernel_profile): kernel_profile(lambda: mlp.read() and x + 1)
def test_among_the_tests(kernel_profile): kernel_profile(own, x)
"""
READS = "def read(): return open({path!r}).read()\n"
INI = """
[pytest]
pythonpath = . tests
addopts = -k "not excluded" --junitxml=j.xml --maxfail=9 --deselect=none -m ""
kernelprof_against_copy =
    pkg/_version.py
    pkg/*.missing
kernelprof_against_prepare = echo "git = '$GIT_DIR'" > pkg/built.py && git status || true
"""


@pytest.mark.usefixtures("quick_references")
def test_snapshots_accept_and_what_else_there_is_to_say_is_said(
    against: Run, repository: Repository
) -> None:
    here = repository.folder
    data = here / "data.txt"
    reads = READS.format(path=str(data))
    init = "from pkg import _version, built\n"
    ignored = "_version.py\nbuilt.py\n__pycache__\nj.xml\n"
    repository.commit({"pkg/__init__.py": init, "pkg/mlp.py": OLD + reads, "pytest.ini": INI})
    repository.commit({".gitignore": ignored, "data.txt": "1"})
    repository.write({"pkg/mlp.py": NEW + reads, "pkg/_version.py": "", "pkg/built.py": ""})
    repository.write({"tests/test_it.py": TESTS, "tests/model.py": "def own(x): return x + 1"})
    whole = KeptTest((KeptProfile(NOW),), {})
    entries = {"test_accepted": whole, "test_accepted_of_the_whole_call": whole}
    update(path_of(str(here / "tests/test_it.py"), "cpu"), entries)
    result = against("-v")
    result.assert_outcomes(failed=1, passed=4)
    lines = told(result)
    words = " ".join(lines)
    assert "1 of 5 tests is worse than main (" in words
    assert "against main: 1 worse, 2 accepted by snapshot, 2 unchanged" in lines
    assert "✗ mlp.py:1: added operator: aten::mul (test_not_in_its_snapshot)" in lines
    accepted = lines.index("accepted by snapshot")
    result.stdout.fnmatch_lines(["E   worse than main: operators 1 -> 2"])
    assert [one for one in lines[accepted:] if "test_accepted" in one] == [
        f"✓ 1 -> 2 {name}" for name in entries
    ]
    for note in (
        "kernelprof_against_copy: pkg/*.missing matches no file",
        "note test_it.py::test_reads: the baseline opened files of your folder: data.txt",
        "test_among_the_tests: all lines that launch kernels are in your tests, which replace "
        "those of the revision: tests/model.py",
    ):
        assert note in words


ONE = """
import torch
from pkg import mlp
def test_one(kernel_profile): kernel_profile(mlp.f, torch.ones(4))
"""


@pytest.fixture
def grown(repository: Repository) -> Repository:
    """One operator yesterday, two today."""
    repository.commit({"pkg/__init__.py": "", "pkg/mlp.py": OLD})
    repository.commit({"pytest.ini": "[pytest]\npythonpath = ."})
    repository.write({"pkg/mlp.py": NEW, "tests/test_one.py": ONE})
    return repository


@pytest.mark.usefixtures("quick_references")
def test_it_may_be_started_in_a_folder_that_the_revision_lacks(
    pytester: pytest.Pytester, grown: Repository
) -> None:
    (grown.folder / "build").mkdir()
    os.chdir(grown.folder / "build")
    usual = ("-p", "no:cacheprovider", "--kernelprof-device=cpu")
    result = pytester.runpytest_inprocess(*usual, "--kernelprof-against=main", "..")
    assert told(result)[0].startswith("1 of 1 test is worse than main (")


def test_a_temporary_folder_below_the_root_is_a_usage_error_that_names_the_variable(
    against: Run, grown: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision's files would lie among those of today, as some of them."""
    (grown.folder / "tmp").mkdir()
    monkeypatch.setattr(supervisor, "make_folder", partial(make_folder, str(grown.folder / "tmp")))
    result = against()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kernelprof-against: the temporary folder (TMPDIR) is in *: move it"]
    )
    assert list((grown.folder / "tmp").iterdir()) == []


NAMED_LIKE_TESTS = """
import importlib
from pkg.load_test.heads import act
from pkg.test_both import shared
from pkg.test_time_augmentation import f
def at_call(x):
    from .perf_test import f
    return f(x)
def late(x): return importlib.import_module(f"pkg.{'late_tests'}.k").f(x)
"""
OF_TESTS = """
import torch
from helpers import calls
from pkg import mlp
x = torch.ones(4)
def test_module(kernel_profile): kernel_profile(mlp.f, x)
def test_folder(kernel_profile): kernel_profile(mlp.act, x)
def test_at_call(kernel_profile): kernel_profile(mlp.at_call, x)
def test_late(kernel_profile): kernel_profile(mlp.late, x)
def test_helper_of_today(kernel_profile): kernel_profile(calls, mlp.act)
"""
HOLDS_A_TEST = """
def shared(x): return {returned}
def test_shared(kernel_profile):
    import torch
    kernel_profile(shared, torch.ones(4))
"""
FIXTURES = "import pytest\nfrom pkg import mlp\n@pytest.fixture\ndef by_fixture(): return mlp.f\n"


@pytest.mark.usefixtures("quick_references")
def test_code_that_is_named_like_tests_is_the_revisions(
    against: Run, repository: Repository, pytester: pytest.Pytester
) -> None:
    pytester.syspathinsert()
    repository.commit(
        {
            "pytest.ini": "[pytest]\npythonpath = . tests\naddopts = -p tests.early",
            "conftest.py": "pytest_plugins = ['pkg.fixtures', 'tests.plugin']",
            "pkg/__init__.py": "",
            "pkg/mlp.py": NAMED_LIKE_TESTS,
            "pkg/fixtures.py": FIXTURES,
            "pkg/test_time_augmentation.py": OLD,
            "pkg/test_both.py": HOLDS_A_TEST.format(returned="x + 1"),
            "pkg/load_test/heads.py": "def act(x): return x.relu()",
            "pkg/perf_test.py": OLD,
            "pkg/late_tests/k.py": OLD,
            "tests/helpers.py": "",
            "tests/plugin.py": "",
            "tests/early.py": "",
        }
    )
    repository.write(
        {
            "pkg/test_time_augmentation.py": NEW,
            "pkg/test_both.py": HOLDS_A_TEST.format(returned="(x + 1) * 2"),
            "pkg/load_test/heads.py": "def act(x): return x.relu() + 1",
            "pkg/perf_test.py": NEW,
            "pkg/late_tests/k.py": NEW,
            "tests/helpers.py": "import torch\ndef calls(fn): return fn(torch.ones(4))",
            "tests/plugin.py": "import pytest\n@pytest.fixture\ndef new_today(): return 1",
            "tests/early.py": "import pytest\n@pytest.fixture\ndef as_new(): return 1",
            "tests/test_it.py": OF_TESTS,
            "tests/test_by_fixture.py": "import torch\n"
            "def test_by_fixture(kernel_profile, by_fixture, new_today, as_new):\n"
            "    kernel_profile(by_fixture, torch.ones(4))\n",
        }
    )
    result = against("-rf", "-v")
    words = " ".join(told(result))
    assert words.startswith("5 of 7 tests are worse than main (")
    for row in (
        "✗ 1 -> 2 test_module",
        "✗ 1 -> 2 test_folder",
        "✗ 1 -> 2 test_at_call",
        "✗ 2 -> 3 test_helper_of_today",
        "✗ 1 -> 2 test_by_fixture",
    ):
        assert row in words
    assert (
        "pkg/load_test/heads.py, pkg/perf_test.py, pkg/test_time_augmentation.py: taken from the "
        "revision, since its code imports it, though it is named like a test"
    ) in words
    both = "the revision's code imports {}; both sides ran yours"
    assert both.format("pkg/test_both.py") in words
    assert both.format("pkg/late_tests/k.py, pkg/test_both.py") in words


LEAKS = """
import torch
from pkg import mlp
x = torch.ones(4)
def test_first(kernel_profile): kernel_profile(mlp.grows, x)
def test_unmeasured(): mlp.CALLS.append(1)
def test_leaked(kernel_profile): kernel_profile(mlp.leaks, x)
def test_stale(kernel_profile): kernel_profile(mlp.grows, x)
"""
LEAKY = """
CALLS = []
def grows(x): return {}
def leaks(x): return x + 1 if CALLS else x
"""


@pytest.mark.usefixtures("quick_references")
def test_state_that_only_this_side_has_is_told_and_an_old_snapshot_accepts_nothing(
    against: Run, repository: Repository
) -> None:
    """Nobody reviews a snapshot that the revision has as well."""
    loose = {"test_stale": KeptTest((KeptProfile((*NOW, "aten::mul")),), {})}
    update(path_of(str(repository.folder / "tests/test_it.py"), "cpu"), loose)
    repository.commit({"pkg/__init__.py": "", "pkg/mlp.py": LEAKY.format("x + 1")})
    repository.commit({"pytest.ini": "[pytest]\npythonpath = .", "tests/test_it.py": LEAKS})
    repository.write({"pkg/mlp.py": LEAKY.format("(x + 1) * 2")})
    result = against("-v")
    words = " ".join(told(result))
    assert words.startswith("3 of 3 tests are worse than main (")
    assert "✗ 1 -> 2 test_stale" in words
    unmeasured = (
        "tests that are not measured ran before it on your code, but not on the baseline: run it "
        "alone"
    )
    assert f"note test_it.py::test_leaked, test_it.py::test_stale: {unmeasured}" in words


def test_a_command_that_fails_is_a_usage_error(
    against: Run, repository: Repository, place: Path
) -> None:
    repository.commit({"pytest.ini": "[pytest]\nkernelprof_against_prepare = echo no make; exit 2"})
    result = against()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: kernelprof_against_prepare: 'echo no make; exit 2' ended with status 2",
            "  no make",
        ]
    )
    assert list(place.glob("kernelprof-against-*")) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/etc/*", "got ['/etc/*']; expected globs below the root folder, one a line, *"),
        ("../x", "got ['../x']; expected globs below the root folder, one a line, *"),
    ],
)
def test_globs_are_of_the_users_own_folder(
    against: Run, repository: Repository, value: str, words: str
) -> None:
    result = against("-o", f"kernelprof_against_copy={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: ini key kernelprof_against_copy: {words}".replace("[", "[[]")]
    )


INSTALLED = """
import sys, site
site.addsitedir({folder!r})
"""
EDITABLES = """
import importlib.util, sys
class RedirectingFinder:
    _redirections = {}
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name in cls._redirections:
            return importlib.util.spec_from_file_location(name, cls._redirections[name])
sys.meta_path.append(RedirectingFinder)
"""
PACKAGES = ("src_pth", "flat_finder", "ns.pth", "ns.finder", "hatch_exact", "on_the_path")
ALL = """
import pytest, torch
from {name} import mlp
def test_it(kernel_profile):
    kernel_profile(mlp.f, torch.ones(4))
"""
INSIDE = """
import torch
from on_the_path import mlp
def test_inside(kernel_profile):
    kernel_profile(mlp.f, torch.ones(4))
"""


@pytest.fixture
def site_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder that is a site directory, here and in the processes that are started."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(INSTALLED.format(folder=str(folder)))
    known = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), known])))
    path, finders = sys.path[:], sys.meta_path[:]
    yield folder
    sys.path[:], sys.meta_path[:] = path, finders


def install(root: Path, folder: Path) -> None:
    """As ``pip install -e`` leaves it, by setuptools (two forms) and by hatchling."""
    where = {name: str(root / "one" / name.replace(".", "/")) for name in PACKAGES}
    (folder / "src.pth").write_text(f"{root}/src\n{root}/ns_src\n")
    packages = {name: where[name] for name in ("flat_finder", "ns.finder")}
    finder = editable_wheel._finder_template("it", packages, {})
    (folder / "__editable___it_finder.py").write_text(finder)
    (folder / "redirector.py").write_text(EDITABLES)
    here = f"import sys; sys.path.insert(0, {str(folder)!r}); "
    exact = f"['hatch_exact'] = {where['hatch_exact']!r} + '/__init__.py'"
    added = f"import redirector; redirector.RedirectingFinder._redirections{exact}"
    (folder / "it.pth").write_text(
        f"{here}import __editable___it_finder as it; it.install()\n{here}{added}\n"
    )
    site.addsitedir(str(folder))


def test_packages_of_each_layout_are_the_revisions(
    against: Run, repository: Repository, site_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository.folder
    folders_of = {
        "src_pth": "src/src_pth",
        "ns.pth": "ns_src/ns/pth",
        "on_the_path": "lib/on_the_path",
    }
    places = {name: folders_of.get(name, f"one/{name.replace('.', '/')}") for name in PACKAGES}
    for text in (OLD, NEW):
        for place in places.values():
            repository.write({f"{place}/__init__.py": "", f"{place}/mlp.py": text})
        if text is OLD:
            repository.write({"src/src_pth/tests/__init__.py": ""})
            # The root folder of pytest lies below that of git.
            repository.commit({"lib/pytest.ini": "[pytest]\npythonpath = ."})
    repository.write({"lib/on_the_path/tests/test_inside.py": INSIDE})
    for number, name in enumerate(PACKAGES):
        repository.write({f"lib/tests/test_{number}.py": ALL.format(name=name)})
    install(root, site_folder)
    # An environment in the root is none of the code.
    repository.write({".venv/pyvenv.cfg": "", ".venv/lib/tests/test_of_others.py": ""})
    before = everything(root)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    result = against("-c", "lib/pytest.ini", "--rootdir=lib", "lib")
    result.assert_outcomes(failed=len(PACKAGES) + 1)
    assert told(result)[0].startswith("7 of 7 tests are worse than main (")
    assert everything(root) == before


def test_by_another_environments_python_its_copy_is_the_revision(
    against: Run,
    repository: Repository,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.commit({"src/pkg/__init__.py": "from pkg import _made", "src/pkg/mlp.py": OLD})
    repository.write({"pytest.ini": "[pytest]\npythonpath = src", ".gitignore": "_made.py"})
    repository.write({"src/pkg/mlp.py": NEW, "src/pkg/_made.py": ""})
    repository.write({"tests/test_it.py": ALL.format(name="pkg")})
    folder = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "ours.pth").write_text(
        "\n".join(f"import site; site.addsitedir({one!r})" for one in ours)
    )
    shutil.copytree(repository.folder / "src" / "pkg", packages / "pkg")
    (packages / "pkg" / "mlp.py").write_text(OLD)
    package = str(Path(supervisor.__file__).parents[2])  # which need not be what is installed
    monkeypatch.setenv("PYTHONPATH", package, prepend=os.pathsep)
    option = f"--kernelprof-against-python={folder}/bin/python"
    result = against(option)
    result.assert_outcomes(failed=1)
    lines = told(result)
    assert lines[0].startswith("1 of 1 test is worse than main (")
    assert "✗ mlp.py:1: added operator: aten::mul (test_it)" in lines
    result.stdout.fnmatch_lines(["E   worse than main: operators 1 -> 2"])


def test_a_python_that_cannot_be_used_is_a_usage_error(
    against: Run, repository: Repository
) -> None:
    repository.commit({"a": ""})
    result = against("--kernelprof-against-python=nowhere/bin/python")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kernelprof-against-python: 'nowhere/bin/python' is not a program: give the *"]
    )
