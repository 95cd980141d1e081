"""The option --kernelprof-against: a test is run on a revision's code, too, and compared."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from on_workers import two_workers

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.baselines import supervisor, worker

Run = Callable[..., pytest.RunResult]

OLD = """
import torch, torch.nn.functional as F
def grows(x): return F.gelu(x @ x)
def shrinks(x): return F.gelu(x @ x) + 1
def stays(x): return x @ x
def broken(x): raise ValueError("as it was")
def twice(): return 1
"""
NEW = """
import torch, torch.nn.functional as F
def grows(x): return F.gelu(x @ x) * 2
def shrinks(x): return F.gelu(x)
def stays(x): return x @ x
def broken(x): return x + 1
def fresh(x): return x + 1
def twice(): return 2
"""
TESTS = """
import pytest, torch
from pkg import mlp
x = torch.ones(8, 8)

def test_grows(kernel_profile):
    kernel_profile(mlp.grows, x)
def test_shrinks(kernel_profile):
    kernel_profile(mlp.shrinks, x)
@pytest.mark.parametrize("n", [1, 2])
def test_stays(kernel_profile, n):
    with kernel_profile.region("r"):
        mlp.stays(x)
def test_broken(kernel_profile):
    kernel_profile(mlp.broken, x)
def test_fresh(kernel_profile):
    kernel_profile(mlp.fresh, x)
def test_another_number_of_calls(kernel_profile):
    for _ in range(mlp.twice()):
        kernel_profile(mlp.stays, x)
@pytest.mark.max_kernels(1)
def test_over_its_limit_there(kernel_profile):
    kernel_profile(mlp.shrinks, x)
def test_random(kernel_profile):
    kernel_profile(lambda: [mlp.stays(x) for _ in range(int(torch.randint(1, 999, ())))])
def test_fails_by_itself(kernel_profile):
    kernel_profile(mlp.stays, x)
    assert False
def test_skips(kernel_profile):
    pytest.skip("not today")
def test_plain():
    pass
def test_excluded(kernel_profile):
    kernel_profile(mlp.grows, x)
"""
HOOKED = """
def pytest_kernelprof_profile(item):
    with open(PATH, "a") as file:
        print(item.path, file=file)
"""
QUICK = """
from pytest_kernelprof.baselines import worker
command = worker._command
worker._command = lambda *given: [PYTHON, *command(*given)[1:]]
"""
OWN = """
import torch
def test_own(kernel_profile):
    kernel_profile(lambda: torch.ones(8) + 1)
"""


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    """Yesterday's code, committed, with today's beside it; tests that are new and not tracked."""
    made = Repository(pytester.path)
    ini = "[pytest]\naddopts = --junitxml=j.xml\npythonpath = ."
    made.commit({"pkg/__init__.py": "", "pkg/mlp.py": OLD, "pytest.ini": ini})
    made.write({"pkg/mlp.py": NEW, "tests/test_mlp.py": TESTS, "tests/test_own.py": OWN})
    made.write({"tests/conftest.py": HOOKED.replace("PATH", repr(str(pytester.path / "hooked")))})
    return made


@pytest.fixture
def against(pytester: pytest.Pytester) -> Run:
    def run(*options: str, given: str = "main") -> pytest.RunResult:
        given = f"--kernelprof-against={given}"
        # pytest-benchmark asks git, too, in a way that writes the index.
        usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
        return pytester.runpytest_inprocess(*usual, given, *options)

    return run


@pytest.fixture(autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's runs, and of nobody else's."""
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.setattr(supervisor, "make_folder", partial(supervisor.make_folder, str(folder)))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left_over(place: Path) -> list[Path]:
    """Trees of revisions; folders for traces of references."""
    return [*place.glob("kernelprof-against-*"), *place.glob("kernelprof-traces-*")]


REWRITTEN = """
def pytest_sessionfinish():
    import sys
    ours = [one for name, one in sys.modules.items() if name.startswith("pytest_kernelprof.")]
    found = [one.__name__ for one in ours if "Rewriting" in type(one.__loader__).__name__]
    with open(PLACE, "a") as file:
        print(len(ours) > 40, found, file=file)
"""


def test_a_reference_imports_this_package_as_it_is(
    against: Run, repository: Repository, tmp_path: Path
) -> None:
    """pytest would rewrite the assertions of 64 modules at each start."""
    place = tmp_path / "rewritten"
    with (repository.folder / "tests" / "conftest.py").open("a") as file:
        file.write(REWRITTEN.replace("PLACE", repr(str(place))))
    against("-k", "test_grows")
    assert place.read_text().splitlines() == ["True []"] * 2


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_each_test_is_compared(
    against: Run,
    repository: Repository,
    place: Path,
    workers: str,
    python: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is worse stays so, however often it is repeated.
    repeated = ["-p", "rerunfailures", "--reruns=1"]
    chosen = two_workers(python) if workers == "-n2" else repeated
    if workers == "-n2":  # their references have torch loaded; without workers it is a usual one
        # This process loads the conftest, too: what that replaces is put back at the end.
        monkeypatch.setattr(worker, "_command", worker._command)
        with (repository.folder / "tests" / "conftest.py").open("a") as file:
            file.write(QUICK.replace("PYTHON", repr(python)))
    git = {k: v for k, v in repository.everything().items() if k.startswith(".git/")}
    result = against(*chosen, "-k", "not excluded", "-v")
    lines = [" ".join(line.split()) for line in result.outlines]
    short = repository.git("rev-parse", "--short=7", "HEAD")
    at = next(i for i, line in enumerate(lines) if f" against main ({short}) " in line)
    told = lines[at + 1 :]
    assert told[0].startswith("1 of 6 compared tests is worse than main (")
    assert any("5 not compared, 2 better, 3 unchanged" in line for line in told)
    at, end = told.index("✗ mlp.py:3: added operator: aten::mul (test_grows)"), told.index("better")
    todo = "to do: remove the added operator, or fuse it (torch.compile)"
    assert told[at + 1 : at + 4] == ["worse than main: operators 2 -> 3", todo, ""]
    better = told[end:]
    assert "✓ 3 -> 1 test_shrinks" in better
    assert any(line.startswith("✓ 3 -> 1 ") and line.endswith("limit_there") for line in better)
    sentences = " ".join(better)
    for reason in (
        "different work: 2 profiles, 1 in the baseline",
        "the baseline cannot run it: ValueError: as it was",
        "the baseline cannot run it: AttributeError: module 'pkg.mlp' has no attribute 'fresh'",
        "the test fails on your code",
        "the test uses no file of the revision, only tests",
    ):
        assert f": {reason} " in sentences
    result.assert_outcomes(failed=2, passed=10, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "E   worse than main: operators 2 -> 3",
            "  at mlp.py:3",
            "    3 | def grows(x): *",
            f"  against main ({short}): + new",
            "+ 3 * aten::mul *mlp.py:3",
        ]
    )
    assert "kernelprof-against" not in (repository.folder / "hooked").read_text()
    assert 'tests="13"' in (repository.folder / "j.xml").read_text()
    assert {k: v for k, v in repository.everything().items() if k.startswith(".git/")} == git
    assert left_over(place) == []


LIFE = """
import os, pytest
from pkg import slow
@pytest.fixture
def once(request):
    slow.wait(request.node.name)
@pytest.mark.max_kernels(2)
def test_hangs(once, kernelprof_device): import torch; torch.ones(2) + 1
@pytest.mark.max_kernels(2)
def test_dies(once, kernelprof_device): import torch; torch.ones(2) + 1
@pytest.mark.max_kernels(2)
def test_after(once, kernelprof_device): import torch; torch.ones(2) + 1
"""
SLOW = """
import os, time
def wait(name):
    print("there", os.getpid(), flush=True)
    open(MARK, "w").write(str(os.getpid()))
    if name == "test_hangs": time.sleep(600)
    if name == "test_dies": os._exit(3)
"""


@pytest.fixture
def living(pytester: pytest.Pytester) -> Repository:
    made = Repository(pytester.path)
    mark = str(pytester.path / "mark")
    made.write({"pytest.ini": "[pytest]\npythonpath = ."})
    made.commit({"pkg/__init__.py": "", "pkg/slow.py": SLOW.replace("MARK", repr(mark))})
    made.write({"pkg/slow.py": "def wait(name): pass", "tests/test_life.py": LIFE})
    return made


@pytest.mark.usefixtures("living")
def test_a_reference_that_hangs_or_dies_is_told_and_the_run_goes_on(
    against: Run, place: Path
) -> None:
    result = against("-o", "kernelprof_against_timeout=1")
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # nothing could be compared
    result.stdout.fnmatch_lines(
        [
            "3 of 3 tests are within their limits, no test could be compared with main (*",
            "*test_hangs: the baseline cannot run it: the reference was ended: it ran",
            "*test_dies: the baseline cannot run it: the reference died while it ran",
            "*test_after: the baseline cannot run it: the reference died while it ran",
            "*already been restarted once",
            "the run fails: nothing could be compared",
        ]
    )
    assert list(place.glob("kernelprof-against-*")) == []


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_run(living: Repository, place: Path, how: signal.Signals) -> None:
    mark = living.folder / "mark"
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--kernelprof-against=main"]
    with subprocess.Popen(
        [sys.executable, *command, "--kernelprof-device=cpu", "tests"],
        cwd=living.folder,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as run:
        try:
            wait_for(lambda: mark.exists() and mark.read_text())
            reference = Path("/proc", mark.read_text())
            assert reference.exists()
            run.send_signal(how)
            wait_for(lambda: not (reference.exists() or list(place.glob("kernelprof-against-*"))))
        finally:
            run.kill()


def heed_interrupts() -> None:
    """What a shell starts in the background ignores them, and so does what that starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(true: Callable[[], object]) -> None:
    late = time.monotonic() + 60
    while not true():
        assert time.monotonic() < late
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("given", "words"),
    [("nothing", "there is no revision 'nothing' in *"), (".", "'.' is the code that is tested*")],
)
def test_what_is_no_revision_is_a_usage_error(
    against: Run, repository: Repository, given: str, words: str
) -> None:
    result = against(given=given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --kernelprof-against: {words}"])


def test_with_nothing_measured_there_is_nothing_to_compare(
    against: Run, repository: Repository
) -> None:
    result = against("--kernelprof-disable")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kernelprof-against: *--kernelprof-disable*"])


def test_a_run_that_measures_nothing_is_no_pass(
    against: Run, repository: Repository, pytester: pytest.Pytester
) -> None:
    result = against("-k", "test_plain")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(
        ["No test is measured, so nothing is compared with * (--kernelprof-all*"]
    )


PROFILES_ITSELF = """
import torch
def f(x):
    with torch.profiler.profile():
        return x @ x
"""


@pytest.mark.usefixtures("quick_references")
def test_a_test_that_has_a_number_there_and_none_here_is_told(
    against: Run, pytester: pytest.Pytester
) -> None:
    """With --kernelprof-all a test may be beyond measuring; where the revision's is not, that is
    no silence."""
    made = Repository(pytester.path)
    test = "import torch\nfrom pkg import m\ndef test_it(): m.f(torch.ones(8, 8))"
    code = "def f(x): return x @ x"
    ini = "[pytest]\npythonpath = ."
    made.commit({"pytest.ini": ini, "pkg/__init__.py": "", "pkg/m.py": code, "test_it.py": test})
    made.write({"pkg/m.py": PROFILES_ITSELF})
    result = against("--kernelprof-all", given="HEAD")
    result.stdout.fnmatch_lines(
        ["No test could be compared with HEAD (*", "*test_it: nothing is measured: *"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


LIMITED = """
import pytest, torch
from pkg import mlp
x = torch.ones(8, 8)

@pytest.mark.max_kernels(1)
def test_over_and_worse(kernel_profile):
    kernel_profile(mlp.grows, x)
@pytest.mark.max_kernels(0)
def test_over_on_both_sides(kernel_profile):
    kernel_profile(mlp.stays, x)
@pytest.mark.xfail
@pytest.mark.max_kernels(0)
def test_expected_to_fail_on_both_sides(kernel_profile):
    kernel_profile(mlp.stays, x)
@pytest.mark.max_kernels(0)
def test_raises(kernel_profile):
    kernel_profile(mlp.stays, x)
    assert False
"""


@pytest.mark.usefixtures("quick_references")
def test_a_test_over_its_own_limit_is_compared_as_well(
    against: Run, repository: Repository
) -> None:
    """The failure states the limit first; what is worse than the revision follows."""
    repository.write({"tests/test_mlp.py": LIMITED})
    result = against("--kernelprof-markdown=run.md", "tests/test_mlp.py")
    result.assert_outcomes(failed=3, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 1 (was 2 in main)",
            "  at mlp.py:3",
            "    3 | def grows(x): *",
            "  against main (*): + new",
            "+ 3 * aten::mul *mlp.py:3",
            "*= kernel profiles against main (*) =*",
            "3 of 4 tests break a limit, 1 of 3 compared tests is worse than main (*",
            "✗ mlp.py:3: added operator: aten::mul (test_over_and_worse)",
            "  to do: remove the added operator, or fuse it (torch.compile)",
            "not compared test_mlp.py::test_raises: the test fails on your code",
        ]
    )
    page = (repository.folder / "run.md").read_text()
    rows = [line.removeprefix("| ❌ | ") for line in page.splitlines() if "| ❌ |" in line]
    over, worse = (row.partition(" | ")[0].split("<br>") for row in rows)
    assert over[:2] == ["**max_kernels: 1&nbsp;> limit&nbsp;0** (2 tests)", "`mlp.py:5`"]
    assert worse == [
        "**added operator: aten::mul** in `test_over_and_worse`",
        "`mlp.py:3`",
        "max_kernels: 3 > limit 1 (was 2 in main)",
    ]
    assert "\n<sub>not compared: test_mlp.py::test_raises: the test fails on your code<br>" in page


@pytest.mark.usefixtures("quick_references")
def test_a_comparison_that_fails_nothing_does_not_say_that_the_run_passes(
    against: Run, repository: Repository
) -> None:
    repository.write({"tests/test_mlp.py": LIMITED})
    result = against("--color=yes", "tests/test_mlp.py", "-k", "over_on_both or raises")
    result.assert_outcomes(failed=2)
    # The other reason is a test over its limit: nothing of this section is green.
    assert not any("\x1b[32m" in line for line in result.outlines if "main" in line)
    result.stdout.no_fnmatch_line("*the run fails*")


REPLACED = """
import torch
def stays(x): return x @ x
def swaps(x): return torch.tanh(x @ x)
"""
SWAPS = """
import torch
from pkg import mlp
x = torch.ones(8, 8)
def test_stays(kernel_profile): kernel_profile(mlp.stays, x)
def test_swaps(kernel_profile): kernel_profile(mlp.swaps, x)
"""


@pytest.mark.usefixtures("quick_references")
def test_another_kernel_at_equal_counts_is_changed_in_every_format(
    against: Run, repository: Repository, pytester: pytest.Pytester
) -> None:
    repository.commit({"pkg/mlp.py": REPLACED})
    repository.write({"pkg/mlp.py": REPLACED.replace("tanh", "sigmoid")})
    repository.write({"tests/test_mlp.py": SWAPS})
    pages = ("--kernelprof-markdown=run.md", "--kernelprof-html=run.html")
    result = against(*pages, "--kernelprof-json=run.json", "tests/test_mlp.py")
    assert result.ret == pytest.ExitCode.OK
    counts = "1 changed (other kernels, same counts), 1 unchanged"
    result.stdout.fnmatch_lines(
        [
            "None of 2 tests is worse than main (*",
            "changed (other kernels, same counts)",
            "✓ * 2 *test_swaps",
            "    - aten::tanh *mlp.py:4",
            "    + aten::sigmoid *mlp.py:4",
            f"against *main: {counts}",
        ]
    )
    page = (repository.folder / "run.md").read_text()
    assert f": {counts}; same number of operators<br>" in page.replace("\\", "")
    (row,) = (line for line in page.splitlines() if "swaps" in line)
    assert row.replace("\u200c", "") == (
        "- ✅ `test_mlp.py::test_swaps`: changed (other kernels, same counts): "
        "operator gone: aten::tanh at mlp.py:4; added operator: aten::sigmoid at mlp.py:4"
    )
    html = (repository.folder / "run.html").read_text()
    assert f"{counts}; same number of operators" in html
    for cause in ("- aten::tanh", "+ aten::sigmoid"):
        assert re.search(rf"<p>{re.escape(cause)} <code [^>]*>mlp\.py:4</code></p>", html)
    command = (sys.executable, "-m", "pytest_kernelprof.cli.main", "report", "run.json")
    pytester.run(*command).stdout.fnmatch_lines(
        [f"against *main: {counts}", "same number of operators"]
    )
