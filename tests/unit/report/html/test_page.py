"""The page as text: whole, valid, without anything from elsewhere, whatever names are in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
from pathlib import Path

import pytest
from corpus import NAMES, record
from msgspec.structs import replace
from records import CPU, comparison, held_to, of_ranks, talking
from rounds import kept, many, over, profile_of, run_of

sys.path.insert(0, str(Path(__file__).parent))
from hostile import hostile_run

from pytest_kernelprof.comparison.kernel_diff import diff_profiles
from pytest_kernelprof.records.comparison import (
    MetricDelta,
    Paired,
    ProfileComparison,
    RunComparison,
    TimedPair,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.report.files import FORMS
from pytest_kernelprof.report.html import page
from pytest_kernelprof.report.html.page import html_of

ONE = run_of(
    Test("tests/test_mlp.py::test_worse[a-1]", (profile_of(5, over(5, 4)),), outcome="failed"),
    Test("tests/test_mlp.py::test_well", (profile_of(4, kept(n=4)),)),
)


@pytest.fixture(scope="module")
def one() -> str:
    return html_of(ONE)


@pytest.fixture(scope="module")
def hostile() -> str:
    return html_of(hostile_run())


def text_of(found: str) -> str:
    """What a reader sees, more or less."""
    body = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", found, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", body)).replace("\N{NO-BREAK SPACE}", " ")


def test_it_says_what_happened_first() -> None:
    words = text_of(html_of(replace(ONE, commit="9c41e7a" + 33 * "0")))
    order = (
        *("1 of 2 tests breaks a limit", "What needs a look", "test_worse[a-1] tests/test_mlp.py"),
        *(
            "5 > 4",
            "reference_mlp.py:40 max_kernels: 5 > limit 4",
            "To do: avoid the copy (keep layout and dtype)",
        ),
        *("If intended, allow max_kernels(5) at test_mlp.py:31",),
        *("nvjet 256x128x64 TNT", "aten::mm in aten::linear", "reference_mlp.py:40", "cuda_time"),
        *("Rerun:", "All other profiles", "test_well", "Limits", "This run", "Hottest kernels"),
        "How it was measured",
    )
    at = 0
    for told in order:
        assert told in words[at:], told
        at = words.index(told, at)
    broken, _, well = words.partition("All other profiles")
    # A count that is broken stands in the row; one that is kept only there.
    assert [one.count("Limits") for one in (broken, well)] == [0, 1]


def test_limits_of_an_opened_test_are_listed_if_one_is_no_count_or_did_not_fail() -> None:
    count = over(5, 4)
    time = replace(count, limit="max_cuda_time", metric="cuda_time", unit="us")
    for verdicts, listed in (((count,), 0), ((count, kept()), 1), ((count, time), 1)):
        test = Test("t.py::test_it", (profile_of(5, *verdicts),), outcome="failed")
        assert html_of(run_of(test)).count("<h3>Limits</h3>") == listed


def test_of_ranks_the_hottest_kernels_are_said_to_be_of_one() -> None:
    words = text_of(
        html_of(run_of(Test("t.py::test_it", (of_ranks(profile_of(2), profile_of(3)),))))
    )
    assert "Hottest kernels of rank 0 alone" in words
    assert "of rank 0 alone" not in text_of(html_of(ONE))


def test_limits_options_and_lines_in_what_to_do_are_code() -> None:
    told = "If intended, allow <code>max_kernels(5)</code> at <code>test_mlp.py:31</code>"
    assert told in html_of(ONE)


def commands_of(found: str) -> tuple[list[str], list[str]]:
    """The commands below tests that need a look, and those inside of each."""
    below = re.findall(r'<tbody class="again">.*?</tbody>', found, re.DOTALL)
    inside = re.findall(r'<div class="rerun">.*?</div></div>', found, re.DOTALL)
    return [text_of(one).strip() for one in below], [text_of(one).strip() for one in inside]


def test_commands_stand_once_below_what_needs_a_look_and_in_an_opened_test_for_it_alone() -> None:
    tests = [
        Test(f"t.py::test_{n}", (profile_of(n, over(n, 3)),), outcome="failed") for n in (4, 5)
    ]
    found = html_of(run_of(*tests))
    below, inside = commands_of(found)
    assert below == ["Rerun:pytest t.py::test_4 t.py::test_5Copy"]
    assert inside == [f"Rerun:pytest t.py::test_{n}Copy" for n in (4, 5)]
    assert found.count("Rerun:") == 3


def test_a_failure_that_may_be_accepted_in_a_snapshot_has_a_command_for_it() -> None:
    diff = diff_profiles(profile_of(4), profile_of(5))
    more = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    worse = ProfileComparison(source="revision", change="worse", kernels=diff, metrics=(more,))
    test = Test("t.py::test_it", (held_to(profile_of(5), worse),), outcome="failed")
    main = RunComparison(source="revision", name="main (abc1234)")
    (below,), _ = commands_of(html_of(run_of(test, baselines=(main,))))
    accept = "To accept in a snapshot, if intended:pytest t.py::test_it --kernelprof-updateCopy"
    assert below.endswith(accept)


def test_of_tests_with_one_problem_what_to_do_stands_once_and_an_opened_one_has_its_command() -> (
    None
):
    tests = [
        Test(f"t.py::test_{n}", (profile_of(4, over(4, 3)),), outcome="failed") for n in range(12)
    ]
    found = html_of(run_of(*tests))
    below, inside = commands_of(found)
    words = text_of(found)
    for told in (
        "To do: avoid the copy (keep layout and dtype)",
        "If intended, allow max_kernels(4) at test_mlp.py",
    ):
        assert words.count(told) == 1
    assert below == ["Rerun:pytest t.pyCopy"]
    assert sorted(inside) == sorted(f"Rerun:pytest t.py::test_{n}Copy" for n in range(12))


def test_where_it_broke_lines_that_have_an_address_are_shown_as_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reference_mlp.py").write_text("".join(f"x{i} = {i} < 2\n" for i in range(1, 60)))
    code = '<code class="line">40  x40 = 40 &lt; 2</code>'
    assert code not in html_of(ONE)
    assert html_of(ONE, lambda place: f"https://x/{place.file}").count(code) == 1


def test_what_is_wrong_is_red_and_its_causes_stand_below(one: str) -> None:
    assert '<b class="x-bad">max_kernels: 5 &gt; limit 4</b>' in one.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    causes = re.findall(r'<p class="whys">(.*?)</p>', one)
    most = "nvjet 256x128x64 TNT x2 at reference_mlp.py:40, launched most often"
    assert causes == [most]


def test_no_line_ends_between_a_number_and_its_limit_or_its_per_cent() -> None:
    limit = Verdict(
        limit="max_cuda_time", outcome="failed", metric="cuda_time", unit="us", measured=200.0,
        allowed=100.0,
    )  # fmt: skip
    found = html_of(run_of(Test("t.py::test_it", (profile_of(5, over(5, 4), limit),))))
    for told in ("5 &gt; limit 4", "200.0us &gt; limit 100.0us", "+100.0 %"):
        assert told.replace(" ", "\N{NO-BREAK SPACE}") in found
        assert told not in found


def test_its_head_has_project_commit_device_and_date() -> None:
    found = text_of(html_of(replace(ONE, project="fused-mlp", commit="9c41e7a" + 33 * "0")))
    for told in ("fused-mlp at 9c41e7a", "NVIDIA H200, torch 2.11.0", "2026-11-22 08:50:00 UTC"):
        assert told in found


def test_a_failing_test_stands_once(one: str) -> None:
    (row,) = re.findall(r"<tbody data-word[^>]*>(?:(?!</tbody>).)*test_worse", one, re.DOTALL)
    assert 'data-word="failed"' in row
    assert one.count("<details id=") == 2


def test_lines_lead_to_the_commit_of_a_step_of_github_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = {"SERVER_URL": "https://git.test", "REPOSITORY": "team/it", "SHA": "abc"}
    for name, value in step.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = run_of(Test("t.py::test_it", (profile_of(5, over(5, 4)),), outcome="failed"))
    assert 'href="https://git.test' not in FORMS["html"](run)[0].decode()  # no such file here
    (tmp_path / "reference_mlp.py").touch()
    found = FORMS["html"](run)[0].decode()
    assert 'href="https://git.test/team/it/blob/abc/reference_mlp.py#L40"' in found


def test_one_problem_of_several_tests_is_told_once() -> None:
    tests = [
        Test(f"t.py::test_it[{i}]", (profile_of(5, over(5, 4)),), outcome="failed")
        for i in range(30)
    ]
    found = html_of(run_of(*tests))
    words = text_of(found)
    ((heading, body),) = re.findall(
        r'<tbody class="group problem" data-most="0">(.*?)</tbody>(.*)', found, re.DOTALL
    )
    assert text_of(heading).split("\n")[0].endswith("30 tests")
    most = "nvjet 256x128x64 TNT x2 at reference_mlp.py:40, launched most often"
    for told in (
        most,
        "To do: avoid the copy (keep layout and dtype)",
        "If intended, allow",
    ):
        assert words.count(told) == 1
    assert '<tr class="why">' not in body
    assert len(re.findall(r"\btest_it\[\d+\] t\.py", words)) == 30


def test_tests_without_a_profile_are_rows() -> None:
    crash = Test("t.py::test_crash", outcome="error", why="RuntimeError: out of memory")
    left = Test("t.py::test_left", outcome="skipped", not_judged="no CUDA device")
    words = text_of(html_of(run_of(crash, left)))
    assert "RuntimeError: out of memory" in words
    assert re.search(r"not judged: no CUDA device\s*–\s*test_left t\.py", words)


def test_a_run_on_both_devices_has_a_table_for_each() -> None:
    on_cpu = replace(profile_of(3), environment=CPU)
    found = html_of(run_of(Test("t.py::a", (profile_of(4),)), Test("t.py::b", (on_cpu,))))
    assert found.count('<table class="tests">') == 2
    first, second = found.split('<table class="tests">')[1:]
    assert ">kernels</th>" in first.replace("\n", "") or ">kernels" in first
    assert ">operators" in second.partition("</thead>")[0]


def test_equal_runs_are_equal_pages(one: str) -> None:
    assert html_of(ONE) == one


def test_its_policy_allows_its_own_style_and_script_and_nothing_else(one: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', one)
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy).split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for name, tag in (("style-src", "style"), ("script-src", "script")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", one, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "style-src", "script-src", "base-uri", "form-action"}


@pytest.mark.parametrize("name", ["one", "hostile"])
def test_nothing_in_it_comes_from_elsewhere_or_runs(
    name: str, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(name)
    tags = re.findall(r"<([a-z0-9]+)((?:\s[^<>]*)?)>", found)
    assert {tag for tag, _ in tags}.isdisjoint(
        {"link", "iframe", "img", "object", "embed", "form", "base", "audio", "video"}
    )
    assert sum(tag == "script" for tag, _ in tags) == 2
    for _, attributes in tags:
        assert not re.search(r"\s(on\w+|style|src)=", re.sub(r'"[^"]*"', '""', attributes))
    assert all(one.startswith("#") for one in re.findall(r'href="([^"]*)"', found))


def test_hostile_names_stay_text(hostile: str) -> None:
    assert "<script>window" not in hostile
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", hostile)
    assert "\\x1b[31mred" in hostile
    hostile.encode()  # without surrogates
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', hostile)
    assert any(name.startswith("<script>") for name in json.loads(data[0])["names"])


def test_names_of_100_000_characters_are_cut(hostile: str) -> None:
    assert len(hostile) < 1_000_000
    assert "99,600 characters" in hostile


@pytest.mark.parametrize("name", ["one", "hostile"])
def test_it_is_valid(name: str, request: pytest.FixtureRequest) -> None:
    justhtml = pytest.importorskip("justhtml")
    justhtml.JustHTML(request.getfixturevalue(name), strict=True)


def test_ids_are_unique_and_links_lead_to_them(one: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', one)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="([^"]*)"', one)} <= set(ids)


def test_every_recorded_trace_is_a_page() -> None:
    tests = [Test(f"test_it.py::test_{name}", (record(name),)) for name in NAMES]
    assert html_of(run_of(*tests)).count("<details id=") == len(NAMES)


def test_a_run_without_profiles_is_a_page() -> None:
    assert "No test has a profile" in html_of(Run())
    broken = replace(ONE, unfinished=("interrupted",))
    assert "<b>Unfinished:</b> tests may be missing: interrupted" in html_of(broken)


def test_what_changed_against_a_revision_is_a_table_and_a_diff() -> None:
    old, new = profile_of(4), profile_of(5)
    ratios = (1.07, 1.08, 1.075, 1.081)
    paired = Paired(
        "worse",
        ratio=1.078,
        pairs=tuple(TimedPair("current", one, 24, 233.1, 251.3) for one in ratios),
        agreeing=4,
        margin=0.05,
        baseline_us=233.1,
        current_us=251.3,
    )
    more = MetricDelta(name="kernels", baselines=(4,), current=5, change="worse", judged=True)
    worse = ProfileComparison(
        source="revision",
        test="t.py::test_it",
        change="worse",
        kernels=diff_profiles(old, new),
        metrics=(more,),
        paired=paired,
    )
    lost = replace(
        worse, test="t.py::test_lost", change="not compared", reason="it fails on your code"
    )
    main = RunComparison(source="revision", name="main (abc1234)", profiles=(lost,))
    test = Test("t.py::test_it", (held_to(new, worse),), outcome="failed")
    found = html_of(run_of(test, baselines=(main,)))
    words = text_of(found)
    for told in (
        *(
            "1 of 1 compared test is worse than main (abc1234)",
            "1 worse, 1 not compared; 2 more kernels",
        ),
        *(
            "4 → 5",
            "+7.8 %",
            "+7.0..+8.1 %",
            "it fails on your code",
        ),
        *("Kernels against main", "4 kernels → 5."),
    ):
        assert told in words, told
    assert "the revision" not in words
    assert words.count("abc1234") == 2  # in the title and in the first line
    assert found.count("<ins>") == 2  # in the diff, and in launch order


def test_what_changed_and_fails_nothing_has_the_same_columns() -> None:
    diff = diff_profiles(profile_of(5), profile_of(4))
    better = ProfileComparison(source="revision", change="better", kernels=diff)
    test = Test("t.py::test_it", (held_to(profile_of(4), better),))
    main = RunComparison(source="revision", name="main (abc1234)")
    words = text_of(html_of(run_of(test, baselines=(main,))))
    assert re.search(r"What changed against main\s*better", words)
    assert "5 → 4" in words


def test_communication_stands_beside_the_gpu_time_that_leaves_it_out() -> None:
    both = of_ranks(talking(30.0, own_us=100.0), talking(20.0, own_us=100.0))
    words = text_of(html_of(run_of(Test("t.py::test_it", (both,)))))
    assert re.search(r"kernels\s*GPU us\s*comm us", words)
    assert re.search(r"2 kernels in one round, \S+ and 30.0us of communication", words)
    assert re.search(r"#\s*us\s*kernel", words)
    alone = text_of(html_of(run_of(Test("t.py::test_it", (profile_of(4),)))))
    assert "comm us" not in alone
    assert "of communication" not in alone


def test_callables_that_were_compared_stand_on_one_scale() -> None:
    test = Test("t.py::test_it[a::b]", (profile_of(4),), comparisons=(comparison(),))
    words = text_of(html_of(run_of(test)))
    assert re.search(r"callables measured in turn\s*test_it\[a::b\]", words)
    assert re.search(r"1\s*100.0us ±1.0%\s*1.203\s*1.190..1.215\s*fused", words)


@pytest.mark.bulk
def test_1000_tests_of_20_kernels_are_below_2_mb_and_each_has_its_detail() -> None:
    found = html_of(many(1_000))
    assert len(found) < 2_000_000
    assert found.count("<details id=") == 1_000
    assert "No timeline: the page would be too large. The run document has it." in found


@pytest.mark.bulk
def test_what_does_not_fit_stands_in_the_table_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "WHOLE_BYTES", 10_000)
    monkeypatch.setattr(page, "MOST_BYTES", 20_000)
    found = html_of(many(60))
    shown = found.count("<details id=")
    assert 0 < shown < 10
    assert found.count("<tbody data-word") == 60
    assert f"{60 - shown} of 60 profiles have no details here" in found
    assert found.index("<details id=") < found.index('<tbody data-word="passed"')  # the worst first


def test_a_test_is_counted_and_filtered_by_its_worst_call() -> None:
    mixed = Test("t.py::test_two", (profile_of(5, over(5, 4)), profile_of(4, kept(n=4))))
    again = Test("t.py::test_flaky", (profile_of(4, kept(n=4)),), outcome="rerun")
    twice = Test("t.py::test_well", (profile_of(4, kept(n=4)), profile_of(4, kept(n=4))))
    found = html_of(run_of(mixed, again, twice))
    buttons = re.findall(r'<button type="button" data-word="(.*?)".*?</b> (\d+) ', found)
    assert buttons == [("failed", "1"), ("passed", "1"), ("retried", "1")]
    assert found.count('<tbody data-word="failed"') == 2
