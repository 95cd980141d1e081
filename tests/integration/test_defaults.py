"""Defaults for the tests of a folder, as their page shows them, and what does nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "defaults.md").read_text()
(HOOK,) = re.findall(r"```py\n(.*?)```", HOW_TO, re.DOTALL)
TESTS = """
import pytest, torch
def four(): return torch.ones(4) * 2 + 1 + 1
def test_default(kernel_profile): kernel_profile(four)
@pytest.mark.max_kernels(4)
def test_own(kernel_profile): kernel_profile(four)
@pytest.mark.max_kernels(4)
class TestIt:
    def test_of_its_class(self, kernel_profile): kernel_profile(four)
    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.max_kernels(3))])
    def test_of_its_parameter(self, kernel_profile, n): kernel_profile(four)
def test_plain(): four()
def test_twice_is_twice(kernel_profile, request):
    request.node.add_marker(pytest.mark.max_kernels(4))
    kernel_profile(four)
"""


def written(pytester: pytest.Pytester, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_marker_of_a_hook_is_a_default_and_an_inner_folder_has_its_own(
    run: Run, pytester: pytest.Pytester
) -> None:
    written(
        pytester,
        {
            "outer/conftest.py": HOOK,
            "outer/test_outer.py": TESTS,
            "outer/inner/conftest.py": HOOK.replace("max_kernels(3)", "max_kernels(4)"),
            "outer/inner/test_inner.py": TESTS.replace("max_kernels(4)", "max_kernels(3)"),
            "beside/test_beside.py": TESTS,
        },
    )
    result = run("", "-rfE", "--tb=no")
    failed = {line.split()[1] for line in result.outlines if line.startswith("FAILED ")}
    assert failed == {
        "outer/test_outer.py::test_default",
        "outer/test_outer.py::TestIt::test_of_its_parameter[1]",
        "outer/test_outer.py::test_plain",
        "outer/inner/test_inner.py::test_own",
        "outer/inner/test_inner.py::TestIt::test_of_its_class",
        "outer/inner/test_inner.py::TestIt::test_of_its_parameter[1]",
        "outer/inner/test_inner.py::test_twice_is_twice",
        "beside/test_beside.py::TestIt::test_of_its_parameter[1]",
    }
    assert "errors" not in result.parseoutcomes()


def test_a_pytestmark_that_pytest_does_not_read_is_an_error_of_the_tests_below(
    run: Run, pytester: pytest.Pytester
) -> None:
    mark = "import pytest\npytestmark = [pytest.mark.slow, pytest.mark.max_kernels(0)]\n"
    test = "def test_it(): pass\n"
    written(
        pytester,
        {
            "a/conftest.py": mark,
            "a/b/test_a.py": test,
            "c/__init__.py": mark,
            "c/test_c.py": test,
            "d/conftest.py": mark.replace("max_kernels(0)", "fast"),
            "d/test_d.py": test,
        },
    )
    result = run("", "-rE")
    result.assert_outcomes(errors=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*MarkerError: pytestmark in *a/conftest.py: max_kernels limits nothing, because "
            "pytest does not read pytestmark there; to give all tests of the folder a default, "
            "write in its conftest.py: def pytest_itemcollected(item): *",
            "E   MarkerError: pytestmark in *c/__init__.py: max_kernels limits nothing, *",
        ]
    )


def test_a_marker_that_a_fixture_adds_beside_the_tests_own_is_refused_still(run: Run) -> None:
    result = run(
        """
@pytest.fixture
def late(request): request.node.add_marker(pytest.mark.max_kernels(0))
@pytest.mark.max_kernels(3)
def test_it(late): three()
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*max_kernels is set twice on test_it*"])
