"""Options and settings: each is parsed and checked once, wherever it is said."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any, cast

import pytest

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import Limit, parse_keyword, parse_limit
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.measure.policy import Needs
from pytest_kernelprof.plugin.ledger import Ledger
from pytest_kernelprof.plugin.measuring import MeasuredTest
from pytest_kernelprof.plugin.settings import (
    GROUPS,
    OPTIONS,
    OPTIONS_FORM,
    Settings,
    check_option,
)
from pytest_kernelprof.records.profile import Place

SECONDS = "expected a number of seconds above zero, for example 600"


def settings(pytester: pytest.Pytester, *options: str) -> Settings:
    return Settings.of(pytester.parseconfig(*options))


def marked(**options: Any) -> pytest.Mark:
    return pytest.mark.kernelprof(**options).mark


@pytest.mark.parametrize("less", [Settings.quiet, Settings.of_a_baseline])
def test_a_run_for_which_another_one_reports_writes_no_file_of_a_run(
    pytester: pytest.Pytester, less: Callable[[Settings], Settings]
) -> None:
    written = ("json", "html", "markdown", "benchmark-json")
    asked = settings(
        pytester,
        *("--kernelprof-report", "--kernelprof-github"),
        *(f"--kernelprof-{name}=run.{name}" for name in written),
    )
    assert len(asked.run_files) == len(written)
    told = less(asked)
    assert (told.run_files, told.report, told.github) == ({}, False, False)


def test_what_nobody_says_has_its_default(pytester: pytest.Pytester) -> None:
    assert settings(pytester).values == {
        "report": False,
        "all": False,
        "only": False,
        "disable": False,
        "require_gpu": False,
        "warmup": 1,
        "rounds": None,
        "device": "auto",
        "flush_l2": True,
        "stacks": False,
        "undecided": "warn",
        "blind": "error",
        "warn_only": False,
        "trace_dir": None,
        "json": None,
        "html": None,
        "markdown": None,
        "github": False,
        "benchmark_json": None,
        "against": (),
        "against_timeout": 600.0,
        "against_exact": False,
        "margin": None,
        "against_python": None,
        "against_copy": (),
        "against_prepare": None,
        "fail_on": (),
        "update": False,
        "require_snapshots": False,
        "benchmarks": (),
        "benchmark_configs": 12,
        "lock_timeout": 600.0,
        "rank_timeout": 120.0,
        "spread_workers": True,
        "revision": None,
        "run_document": None,
        "ranks": None,
        "targets": (),
        "other_processes": "check",
    }


def test_help_shows_each_option_and_its_ini_key(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = pytester.runpytest_inprocess("--help").stdout.str()
    for option in OPTIONS:
        assert option.key in shown
        assert (option.flag in shown) == (option.group is not None), option.name


def test_help_has_the_options_in_four_groups_and_at_most_two_lines_each(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = pytester.runpytest_inprocess("--help").outlines
    groups = [line for line in lines if line.startswith("kernelprof: ")]
    assert groups == [f"{heading}:" for heading in GROUPS.values()]
    begin = [at for at, line in enumerate(lines) if line.startswith("  --kernelprof-")]
    assert len(begin) == sum(option.group is not None for option in OPTIONS)
    for at in begin:
        below = list(takewhile(lambda line: line.startswith(" " * 24), lines[at + 1 :]))
        beside = lines[at][22:24] == "  "
        assert len(below) + beside <= 2, lines[at]


def test_the_marker_line_shows_its_form(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(
        '@pytest.mark.kernelprof(warmup=3, rounds=24, device="cpu", flush_l2=False, stacks=True, '
        'margin="8%", ranks=2, targets=("sm_90", "gfx942"), other_processes="ignore"): how to *'
    )


@pytest.mark.parametrize(
    ("name", "text", "setting"),
    [
        ("rounds", "12", 12),
        ("warmup", "2", 2),
        ("report", "true", True),
        ("report", "off", False),
        ("flush_l2", "no", False),
        ("lock_timeout", "30.5", 30.5),
        ("lock_timeout", "1e3", 1000.0),
        ("device", "cpu", "cpu"),
        ("undecided", "pass", "pass"),
        ("trace_dir", "kept here", "kept here"),
        ("margin", "2 %", 0.02),
        ("trace_dir", "", None),
    ],
)
def test_text_of_an_ini_file_is_read(
    pytester: pytest.Pytester, name: str, text: str, setting: object
) -> None:
    pytester.makeini(f"[pytest]\nkernelprof_{name} = {text}\n")
    assert getattr(settings(pytester), name) == setting


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("rounds", "12", 12),
        ("rounds", '"12"', 12),
        ("report", "true", True),
        ("report", '"yes"', True),
        ("lock_timeout", "30.5", 30.5),
        ("device", '"cpu"', "cpu"),
    ],
)
def test_the_table_ini_options_takes_values_with_and_without_quotes(
    pytester: pytest.Pytester, name: str, value: str, setting: object
) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\nkernelprof_{name} = {value}\n")
    assert getattr(settings(pytester), name) == setting


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rounds = many", "got 'many'; expected a whole number of one or more"),
        ("rounds = 1.5", "got '1.5'; expected a whole number of one or more"),
        ("rounds = ", "got ''; expected a whole number of one or more"),
        ("warmup = -1", "got -1; expected a whole number of one or more"),
        ("only = perhaps", "got 'perhaps'; expected true or false"),
        ("lock_timeout = soon", f"got 'soon'; {SECONDS}"),
        ("lock_timeout = 0", f"got 0.0; {SECONDS}"),
        ("lock_timeout = nan", f"got nan; {SECONDS}"),
        ("lock_timeout = inf", f"got inf; {SECONDS}"),
        ("device = tpu", "got 'tpu'; expected one of auto, cuda, cpu"),
        ("undecided = shrug", "got 'shrug'; expected one of warn, fail, pass"),
    ],
)
def test_nonsense_in_an_ini_file_is_a_usage_error(
    pytester: pytest.Pytester, line: str, words: str
) -> None:
    pytester.makeini(f"[pytest]\nkernelprof_{line}\n")
    with pytest.raises(pytest.UsageError) as error:
        settings(pytester)
    assert str(error.value) == f"ini key kernelprof_{line.partition(' ')[0]}: {words}"


@pytest.mark.parametrize("name", ["rounds", "report", "lock_timeout", "device", "trace_dir"])
@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")  # pytest 9.2 has words of its own, too
def test_a_list_in_ini_options_is_a_usage_error(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\nkernelprof_{name} = ['x']\n")
    with pytest.raises(pytest.UsageError, match=rf"^ini key kernelprof_{name}: got .*; expected "):
        settings(pytester)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("rounds=x", "got 'x'; expected a whole number of one or more"),
        ("rounds=1_2", "got '1_2'; expected a whole number of one or more"),
        ("rounds=\u0661", "got '\u0661'; expected a whole number of one or more"),
        ("device=tpu", "got 'tpu'; expected one of auto, cuda, cpu"),
        ("device=", "got ''; expected one of auto, cuda, cpu"),
        ("trace-dir= ", "got ' '; expected a folder"),
    ],
)
def test_nonsense_on_the_command_line_is_a_usage_error(
    pytester: pytest.Pytester, option: str, words: str
) -> None:
    with pytest.raises(pytest.UsageError) as error:
        settings(pytester, f"--kernelprof-{option}")
    assert str(error.value) == f"--kernelprof-{option.partition('=')[0]}: {words}"


def test_a_number_too_long_to_be_read_is_a_usage_error(pytester: pytest.Pytester) -> None:
    with pytest.raises(pytest.UsageError, match=r"expected a whole number of one or more$"):
        settings(pytester, f"--kernelprof-rounds={'9' * 5000}")


def test_inner_markers_win_option_by_option(pytester: pytest.Pytester) -> None:
    run = settings(pytester, "--kernelprof-rounds=7", "--kernelprof-stacks")
    found = run.with_markers([marked(rounds=3, stacks=False), marked(rounds=5, warmup=2)])
    assert found.values == run.changed(rounds=3, warmup=2, stacks=False).values


def test_what_is_said_of_the_rounds_is_handed_on(pytester: pytest.Pytester) -> None:
    said = settings(pytester, "--kernelprof-stacks", "-o", "kernelprof_lock_timeout=3")
    said = said.changed(flush_l2=False, warmup=5, other_processes="ignore")
    place: Any = None
    test = MeasuredTest("test_it", place, "cpu", said, place, place, True, False)
    plan = test.plan(Needs(), rounds=7)
    assert (plan.device, plan.flush_l2, plan.stacks, plan.warmup) == ("cpu", False, True, 5)
    assert (plan.lock_timeout_s, plan.who, plan.rounds) == (3.0, "test_it", 7)
    assert plan.ignore_children


@pytest.mark.parametrize("everything", [True, False])
def test_ptxas_is_asked_for_a_limit_on_spills_alone(
    pytester: pytest.Pytester, everything: bool
) -> None:
    run, place = settings(pytester), cast(Any, None)
    registers, spills = parse_limit("max_registers", (9,), {}), parse_limit("max_spills", (9,), {})

    def asks(of: tuple[Limit, ...], own: tuple[Limit, ...] = ()) -> bool:
        ledger = Ledger(Marks(of))
        return (
            MeasuredTest("t", place, "cuda", run, ledger, everything=everything).needs(own).spills
        )

    assert not asks((registers,))
    assert not asks(())
    assert asks((registers, spills))
    assert asks((registers,), (spills,))


@pytest.mark.parametrize("everything", [False, True])
def test_a_floor_needs_work_also_where_a_region_alone_has_it(
    pytester: pytest.Pytester, everything: bool
) -> None:
    place, run = Place("test_it.py", 1), settings(pytester)
    floor = parse_keyword("min_bandwidth", "3 TB/s")
    for of_test, own in (((floor,), ()), ((), (floor,))):
        ledger = Ledger(Marks(of_test))
        test = MeasuredTest("test_it", place, "cuda", run, ledger, everything=everything)
        assert test.needs(own).work
        assert test.plan(test.needs(own)).work
    assert not MeasuredTest("test_it", place, "cuda", run, Ledger(Marks())).needs().work


def test_no_marker_says_nothing(pytester: pytest.Pytester) -> None:
    run = settings(pytester, "--kernelprof-rounds=7")
    assert run.with_markers([]).values == run.values


def test_an_outer_marker_is_checked_though_an_inner_one_wins(pytester: pytest.Pytester) -> None:
    with pytest.raises(MarkerError, match=r"^rounds='x': "):
        settings(pytester).with_markers([marked(rounds=3), marked(rounds="x")])


def test_the_marker_takes_keyword_arguments_only(pytester: pytest.Pytester) -> None:
    with pytest.raises(MarkerError) as error:
        settings(pytester).with_markers([pytest.mark.kernelprof(9).mark])
    assert str(error.value) == (
        f"kernelprof: takes keyword arguments only, got (9,). Write {OPTIONS_FORM} "
        f"(see {MarkerError.page})"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("warmup", 1), ("rounds", 24), ("device", "cuda"), ("flush_l2", False), ("stacks", True)],
)
def test_a_value_of_its_form_is_kept(name: str, value: object) -> None:
    assert check_option(name, value) is value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rounds", "x", "rounds='x': expected a whole number of one or more"),
        ("rounds", "3", "rounds='3': expected a whole number of one or more"),
        ("rounds", True, "rounds=True: expected a whole number of one or more"),
        ("warmup", 0, "warmup=0: expected a whole number of one or more"),
        ("warmup", None, "warmup=None: expected a whole number of one or more"),
        ("device", "auto", "device='auto': expected \"cuda\" or \"cpu\""),
        ("device", ["cpu"], "device=['cpu']: expected \"cuda\" or \"cpu\""),
        ("flush_l2", 1, "flush_l2=1: expected True or False"),
        ("stacks", "true", "stacks='true': expected True or False"),
        ("speed", 9, "kernelprof: unknown option 'speed'"),
        ("report", True, "kernelprof: unknown option 'report'"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_refused_with_the_form(
    name: str, value: object, words: str
) -> None:
    with pytest.raises(MarkerError) as error:
        check_option(name, value)
    page = f"(see {MarkerError.page})"
    assert str(error.value) == f"{words}. Write {OPTIONS_FORM} {page}"
