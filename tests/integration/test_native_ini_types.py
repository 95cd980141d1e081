"""Ini keys in pytest 9's TOML mode have native types; whatever else is a usage error."""

from __future__ import annotations

import pytest

from pytest_kernelprof.plugin.settings import Settings

pytestmark = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="pytest reads native types from TOML files since 9.0"
)

TABLES = {"pytest.toml": "[pytest]", "pyproject.toml": "[tool.pytest]"}


def write(pytester: pytest.Pytester, *lines: str, file: str = "pytest.toml") -> None:
    (pytester.path / file).write_text("\n".join([TABLES[file], *lines, ""]))


def settings(pytester: pytest.Pytester, *options: str) -> Settings:
    return Settings.of(pytester.parseconfig(*options))


@pytest.mark.parametrize("file", TABLES)
@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("rounds", "12", 12),
        ("warmup", "3", 3),
        ("report", "true", True),
        ("flush_l2", "false", False),
        ("lock_timeout", "30.5", 30.5),
        ("lock_timeout", "30", 30.0),
        ("device", '"cpu"', "cpu"),
        ("undecided", '"fail"', "fail"),
        ("trace_dir", '"kept"', "kept"),
    ],
)
def test_a_native_value_is_the_setting(
    pytester: pytest.Pytester, file: str, name: str, value: str, setting: object
) -> None:
    write(pytester, f"kernelprof_{name} = {value}", file=file)
    assert getattr(settings(pytester), name) == setting


def test_what_the_file_does_not_say_keeps_its_default(pytester: pytest.Pytester) -> None:
    unsaid = settings(pytester)
    write(pytester, "minversion = '9.0'")
    assert settings(pytester).values == unsaid.values


def test_the_command_line_wins(pytester: pytest.Pytester) -> None:
    write(pytester, "kernelprof_rounds = 12")
    assert settings(pytester, "--kernelprof-rounds=5").rounds == 5


def test_an_override_on_the_command_line_is_text(pytester: pytest.Pytester) -> None:
    write(pytester, "kernelprof_rounds = 12")
    assert settings(pytester, "-o", "kernelprof_rounds=7").rounds == 7


@pytest.mark.parametrize("file", TABLES)
def test_a_run_does_as_a_native_value_says(pytester: pytest.Pytester, file: str) -> None:
    write(pytester, "kernelprof_only = true", file=file)
    pytester.makepyfile("def test_it(): pass")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(deselected=1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rounds", '"twelve"', "got str: 'twelve'; expected a whole number of one or more"),
        ("rounds", '"12"', "got str: '12'; expected a whole number of one or more"),
        ("rounds", "true", "got bool: True; expected a whole number of one or more"),
        ("rounds", "1.5", "got float: 1.5; expected a whole number of one or more"),
        ("rounds", "0", "got 0; expected a whole number of one or more"),
        ("rounds", "[12]", "got list: [12]; expected a whole number of one or more"),
        ("report", '"auto"', "got str: 'auto'; expected true or false"),
        ("report", "1", "got int: 1; expected true or false"),
        (
            "lock_timeout",
            '"30"',
            "got str: '30'; expected a number of seconds above zero, for example 600",
        ),
        (
            "lock_timeout",
            "true",
            "got bool: True; expected a number of seconds above zero, for example 600",
        ),
        (
            "lock_timeout",
            "nan",
            "got nan; expected a number of seconds above zero, for example 600",
        ),
        ("device", "1", "got int: 1; expected one of auto, cuda, cpu"),
        ("device", '"tpu"', "got 'tpu'; expected one of auto, cuda, cpu"),
        ("undecided", '["warn"]', "got list: ['warn']; expected one of warn, fail, pass"),
        ("trace_dir", "7", "got int: 7; expected a folder"),
    ],
)
def test_another_type_is_a_usage_error_that_names_the_key(
    pytester: pytest.Pytester, name: str, value: str, words: str
) -> None:
    write(pytester, f"kernelprof_{name} = {value}")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: ini key kernelprof_{name}: {words}" in result.errlines
