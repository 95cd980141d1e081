"""The site of the docs: it builds without a warning, has a search and the public API."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from built_site import ROOT, build, build_ours

import pytest_kernelprof


@pytest.fixture
def site(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    return once("site", build_ours)


def test_each_page_is_there(site: Path) -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    made = {page.relative_to(site) for page in site.rglob("*.html")}
    assert pages | {Path("api.html"), Path("404.html")} == made


def test_the_api_has_each_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    homes = {getattr(pytest_kernelprof, name).__module__ for name in pytest_kernelprof.__all__}
    for name in pytest_kernelprof.__all__:
        assert any(f'id="{home}.{name}"' in page for home in homes), name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in ("<script src=", '<link rel="stylesheet" href='):
            loaded = page.read_text().split(tag)[1:]
            assert not [one[:80] for one in loaded if one.lstrip('"').startswith(("http", "//"))]


def test_links_to_other_files_lead_to_the_repository(site: Path) -> None:
    page = (site / "trust.html").read_text()
    assert 'href="https://example.invalid/kernelprof/blob/main/benchmarks/' in page


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    for name in ("docs", "pytest_kernelprof"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n[gone](gone.md) and [nowhere](../nowhere.md)\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert "gone.md" in built.stderr
    assert "nowhere.md" in built.stderr
