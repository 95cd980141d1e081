"""Messages that name a page of the docs name one that is there, with that heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\b(docs/[\w/-]+\.md)#([\w-]+)")
POINTERS = sorted(
    {
        found
        for path in (ROOT / "pytest_kernelprof").rglob("*.py")
        for found in NAMED.findall(path.read_text())
    }
)


@pytest.mark.parametrize(("page", "anchor"), POINTERS)
def test_a_page_that_a_message_names_has_the_heading(page: str, anchor: str) -> None:
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
    assert anchor in slugs


BEGINNER = """
import pytest
import torch

def ones():
    return torch.ones(4) + 1

async def late():
    return ones()

@pytest.mark.max_cuda_time("200 parsecs")
def test_unit(kernel_profile):
    kernel_profile(ones)

@pytest.mark.max_kernels
def test_parentheses(kernel_profile):
    kernel_profile(ones)

@pytest.mark.max_syncs(0)
def test_gpu_only(kernel_profile, kernelprof_device):
    kernel_profile(ones)

def test_called(kernel_profile, kernelprof_device):
    kernel_profile(ones())

def test_async(kernel_profile, kernelprof_device):
    kernel_profile(late)

def test_nothing(kernel_profile, kernelprof_device):
    pass
"""


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("unit", "docs/reference.md#markers"),
        ("parentheses", "docs/reference.md#markers"),
        ("gpu_only", "docs/trust.md#what-counts-without-a-gpu"),
        ("called", "docs/reference.md#fixtures"),
        ("async", "docs/reference.md#fixtures"),
        ("nothing", "docs/reference.md#fixtures"),
    ],
)
def test_what_beginners_meet_ends_with_the_page_that_explains_it(
    pytester: pytest.Pytester, name: str, page: str
) -> None:
    pytester.makepyfile(BEGINNER)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs", "-k", f"test_{name}")
    assert f"(see {page})" in " ".join(result.stdout.str().split())
