"""What fixtures measure around a test is judged when they end."""

from __future__ import annotations

import pytest

AROUND = """
@pytest.fixture
def around(kernel_profile):
    with kernel_profile.region("whole", max_kernels=1):
        yield

@pytest.fixture
def after(kernel_profile):
    yield
    kernel_profile(three)

@pytest.fixture
def never(kernel_profile):
    yield
"""


@pytest.mark.project(
    AROUND
    + """
def test_within(around):
    x @ x

@pytest.mark.max_kernels(2)
def test_marker(around):
    x @ x

@pytest.mark.max_kernels(3)
def test_after(after):
    pass

class TestXunit:
    @pytest.fixture(autouse=True)
    def profile(self, kernel_profile):
        self.region = kernel_profile.region("whole", max_kernels=1)
        self.region.__enter__()
        yield
        self.region.__exit__(None, None, None)

    def test_within(self):
        x @ x
"""
)
def test_what_is_within_its_limit_passes(result: pytest.RunResult) -> None:
    result.assert_outcomes(passed=4)


@pytest.mark.project(
    AROUND
    + """
def test_over(around):
    three()

@pytest.mark.max_kernels(1)
def test_after(after):
    pass

def test_nothing(never):
    pass
"""
)
def test_what_is_over_its_limit_is_told_once_when_the_fixture_ends(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=3, errors=3)
    text = result.stdout.str()
    assert text.count("max_kernels: 3 > limit 1") == 2
    assert text.count("asks for kernel_profile but profiled nothing") == 1
    assert text.count("ERROR at teardown of") == 3


@pytest.mark.project(
    AROUND
    + """
def test_own_failure(around):
    x @ x
    assert not "own"

def test_left_open(kernel_profile):
    kernel_profile.region("open", max_kernels=1).__enter__()
"""
)
def test_the_tests_own_fault_is_told_as_ever(result: pytest.RunResult) -> None:
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*region 'open' at test_it.py:* was not measured completely; *"])
