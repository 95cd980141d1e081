"""The page of a run as people use it: in Chromium, with and without its script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report" / "html"))
from hostile import hostile_run
from rounds import kept, many, over, profile_of, run_of

from pytest_kernelprof.report.html.page import html_of
from pytest_kernelprof.schema.paired import Paired
from pytest_kernelprof.schema.run import Comparison, Contestant, Environment, Run, Test

pytestmark = pytest.mark.bulk

Opened = Callable[..., Any]
PHONE = {"viewport": {"width": 390, "height": 800}}
COMPARISON = Comparison(
    "cuda_time",
    "eager",
    (
        Contestant(
            "fused", 1, 100.0, 99.0, 101.0, Paired(ratio=1 / 1.203, low=1 / 1.215, high=1 / 1.19)
        ),
        Contestant("eager", 3, 120.3, 119.0, 121.0),
    ),
    12,
    Environment("cuda", "NVIDIA H200", "sm_90", {"torch": "2.11.0+cu130"}),
)


def run() -> Run:
    return run_of(
        Test(
            "test_mlp.py::test_worse[a-1]", (profile_of(8, over(8, 7), late=4),), outcome="failed"
        ),
        Test("test_mlp.py::test_two", (profile_of(2, kept(n=2)),)),
        Test("test_mlp.py::test_ten", (profile_of(10, kept(n=10)),), (COMPARISON,)),
        Test("test_mlp.py::test_many", (profile_of(300),)),
        Test("test_other.py::test_none", (profile_of(0, kept(n=0)),)),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "run.html"
    path.write_text(html_of(run()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "hostile.html"
    path.write_text(html_of(hostile_run()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "large.html"
    path.write_text(html_of(many(120)), encoding="utf-8")
    return path


def names(page: Any) -> list[str]:
    """The tests whose rows are seen, in their order."""
    return page.locator("#table tbody tr:visible .test a").all_inner_texts()


def zoomed(page: Any) -> tuple[float, float]:
    """What is seen of the first timeline, in microseconds."""
    page.wait_for_function("document.querySelector('.tl').dataset.from !== undefined")
    page.wait_for_timeout(50)
    found = page.evaluate("(({from, to}) => [from, to])(document.querySelector('.tl').dataset)")
    return float(found[0]), float(found[1])


def test_from_a_file_it_loads_nothing_and_complains_of_nothing(opened: Opened, made: Path) -> None:
    seen = opened(made.as_uri())
    seen.open_all()
    assert seen.page.locator("h1").inner_text() == "1 of 4 tests breaks a limit"
    assert seen.requests == [made.as_uri()]
    assert seen.errors == []


def test_over_http_it_loads_nothing_more(
    opened: Opened, made: Path, served: tuple[Path, str]
) -> None:
    folder, address = served
    (folder / "run.html").write_bytes(made.read_bytes())
    seen = opened(f"{address}/run.html")
    seen.open_all()
    assert seen.requests == [f"{address}/run.html"]
    assert seen.errors == []


def test_its_policy_stops_what_gets_into_it(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    page.evaluate(
        """() => {
        const script = document.createElement("script");
        script.textContent = "window.hurt = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hurt = 2'>");
        document.body.insertAdjacentHTML("beforeend", "<p id=red style='color: red'>x</p>");
        }"""
    )
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("getComputedStyle(red).color") != "rgb(255, 0, 0)"


def test_the_worst_is_open_and_first(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    assert page.locator("details.case[open]").count() == 1
    first = page.locator("details.case").first
    assert "test_worse" in first.inner_text()
    assert first.locator(".timeline").is_visible()
    assert page.locator(".looks .figure").all_inner_texts() == ["+1 kernel"]


def test_sorted_by_a_column_and_back(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    head = page.locator("#table th", has_text="kernels")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = names(page)
    assert [down[0], down[-1]] == ["test_many", "test_none"]
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert names(page) == down[::-1]
    page.locator("#table th", has_text="test").get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None
    assert (
        names(page)[0] == "test_none" or "test_mlp.py" in page.locator("#table tbody").inner_text()
    )


def test_filtered_by_words_and_by_verdict(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    page.keyboard.press("/")
    page.keyboard.type("MLP te")
    assert sorted(names(page)) == ["test_many", "test_ten", "test_two", "test_worse[a-1]"]
    page.keyboard.type("n")
    assert names(page) == ["test_ten"]
    assert page.locator("#said").inner_text() == "1 of 5 profiles"
    page.keyboard.press("Escape")
    assert len(names(page)) == 5
    chip = page.locator(".tools button", has_text="over a limit")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert names(page) == ["test_worse[a-1]"]
    chip.click()
    assert len(names(page)) == 5


def test_a_link_opens_the_detail(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    for _ in range(2):  # also after it was closed
        page.locator("#table a", has_text="test_ten").click()
        case = page.locator("details.case", has_text="test_ten")
        page.wait_for_function("(c) => c.open", arg=case.element_handle())
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        page.keyboard.press("Enter")


def test_a_short_name_shows_the_full_one(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    link = page.locator("details[open] a.full").first
    link.click()
    assert link.get_attribute("aria-expanded") == "true"
    assert (
        page.locator("code.shown").inner_text() == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
    )
    link.press("Enter")
    assert page.locator("code.shown").count() == 0


def test_the_timeline_zooms_and_moves(opened: Opened, made: Path) -> None:
    seen = opened(made.as_uri())
    page = seen.page
    before = page.locator("details[open] .box.stream").first.get_attribute("d")
    page.get_by_role("button", name="Zoom in").click()
    from_, to = zoomed(page)
    assert 0 < from_ < to
    assert page.locator("details[open] .box.stream").first.get_attribute("d") != before
    page.locator("details[open] .tl .scroll").focus()
    page.keyboard.press("ArrowRight")
    assert zoomed(page)[0] > from_
    page.keyboard.press("0")
    whole = zoomed(page)
    assert whole[0] == 0
    box = page.locator("details[open] .timeline").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    from_, to = zoomed(page)
    assert from_ > whole[1] - to  # about where the mouse is
    for _ in range(60):
        page.locator("details[open] .tl .scroll").press("+")
    from_, to = zoomed(page)
    assert to - from_ == pytest.approx(0.1)
    assert seen.errors == []


def test_what_the_mouse_is_on_is_told(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    label = page.locator("details[open] .labels text", has_text="gelu").last
    label.scroll_into_view_if_needed()
    box = label.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 5)
    told = page.locator("details[open] .pointed").inner_text()
    assert told == "vectorized_elementwise [gelu]: 30.5us, gelu · stream 7"


def test_idle_time_that_waits_for_the_host_is_told(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    legend = page.locator("details[open] .tl .legend").inner_text()
    assert "idle: the host was late" in legend
    assert page.locator("details[open] .gap-host").count() == 2  # the box, and its colour's sign


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_both_themes(opened: Opened, made: Path, scheme: str, other: str) -> None:
    page = opened(made.as_uri(), color_scheme=scheme).page

    def is_dark() -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour[4:-1].split(","))) < 200

    assert is_dark() == (scheme == "dark")
    button = page.locator("#theme")
    button.click()
    assert is_dark() == (other == "dark")
    assert button.get_attribute("aria-pressed") == str(other == "dark").lower()


def test_without_its_script_all_is_there(opened: Opened, made: Path, large: Path) -> None:
    seen = opened(made.as_uri(), java_script_enabled=False)
    page = seen.page
    assert page.locator(".js:visible").count() == 0
    assert page.locator("#table tbody tr:visible").count() == 5
    case = page.locator("details.case", has_text="test_ten")
    case.locator("summary").click()
    timeline = case.locator(".timeline")
    assert timeline.is_visible()
    assert "Timeline of one profiled round: 10 kernels on 1 stream" in timeline.get_attribute(
        "aria-label"
    )
    assert case.locator(".labels text", has_text="gelu").first.is_visible()
    assert case.locator("table.kernels tbody tr").count() == 10
    assert seen.errors == []
    page.goto(large.as_uri())
    assert page.locator("#table tbody tr:visible").count() == 120


def test_of_many_tests_the_worst_are_seen_and_all_can_be(opened: Opened, large: Path) -> None:
    page = opened(large.as_uri()).page
    assert page.locator("#table tbody tr:visible").count() == 40
    page.get_by_role("button", name="Show 80 more").first.click()
    assert page.locator("#table tbody tr:visible").count() == 120
    page.locator("#table a").nth(110).click()
    page.locator("#p110 .timeline").wait_for(state="visible")


@pytest.mark.parametrize("settings", [{}, PHONE, {"java_script_enabled": False}], ids=repr)
def test_hostile_names_run_nothing_and_break_no_layout(
    opened: Opened, hostile: Path, settings: dict[str, Any]
) -> None:
    seen = opened(hostile.as_uri(), **settings)
    page = seen.page
    if settings.get("java_script_enabled", True):
        seen.open_all()
        page.get_by_role("button", name="Zoom in").first.click()
        for link in page.locator("#table a").all()[:3]:
            link.click()
        page.locator("input").fill("<script>")
        page.mouse.move(200, 400)
        assert page.evaluate("window.hurt") is None
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
    assert page.locator("h1").count() == 1
    assert page.locator("script").count() == 2
    assert page.locator("[onmouseover], [onfocus], [onerror], img, iframe").count() == 0
    assert seen.requests == [hostile.as_uri()]
    assert seen.errors == []


def test_it_fits_a_phone(opened: Opened, made: Path) -> None:
    seen = opened(made.as_uri(), **PHONE)
    seen.open_all()
    wide = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]


def test_by_keyboard_the_tests_are_a_step_away(opened: Opened, made: Path) -> None:
    page = opened(made.as_uri()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the tests"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "filter"


def test_printed_it_has_no_buttons_and_all_rows(opened: Opened, large: Path) -> None:
    page = opened(large.as_uri()).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("button:visible:not(th button), input:visible").count() == 0
    assert page.locator("#table tbody tr:visible").count() == 120


@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, PHONE], ids=["dark", "light on a phone"]
)
def test_people_who_cannot_see_it_can_use_it(
    opened: Opened, made: Path, settings: dict[str, Any]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    seen = opened(made.as_uri(), **settings)  # the first detail is open, which has all parts
    found = axe.Axe().run(seen.page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = {
        one["id"]: [node["html"][:200] for node in one["nodes"][:3]]
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert bad == {}
