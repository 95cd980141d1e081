"""The option --kernelprof-lock-timeout and its ini key."""

from __future__ import annotations

import pytest

from pytest_kernelprof.plugin.settings import Settings, read_settings


def settings(pytester: pytest.Pytester, *options: str) -> Settings:
    return read_settings(pytester.parseconfig(*options))


def test_seconds_are_as_asked_and_the_command_line_wins(pytester: pytest.Pytester) -> None:
    assert settings(pytester).lock_timeout == 600
    assert settings(pytester, "--kernelprof-lock-timeout=2.5").lock_timeout == 2.5
    pytester.makeini("[pytest]\nkernelprof_lock_timeout = 30\n")
    assert settings(pytester).lock_timeout == 30
    assert settings(pytester, "--kernelprof-lock-timeout=7").lock_timeout == 7


@pytest.mark.parametrize("value", ["0", "-1", "soon", "", "nan", "inf", "1e999", "10s"])
def test_what_is_no_number_of_seconds_is_a_usage_error(
    pytester: pytest.Pytester, value: str
) -> None:
    result = pytester.runpytest(f"--kernelprof-lock-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            f"ERROR: --kernelprof-lock-timeout: got '{value}'; expected a number of seconds above "
            "zero, for example 600"
        ]
    )
