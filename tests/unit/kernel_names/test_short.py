"""The table of short names: full names of recorded and public traces, and how people call them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from corpus import NAMES, record

from pytest_kernelprof.kernel_names.short_names import short_name

CASES = {
    case: (full, short or full)
    for case, short, full in (
        line.split("\t")
        for line in Path(__file__).with_name("cases.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_is_called_what_people_call_it(case: str) -> None:
    name, short = CASES[case]
    assert short_name(name) == short


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("Tensile")])
def test_a_search_for_the_stem_finds_the_full_name(case: str) -> None:
    name, _ = CASES[case]
    assert short_name(name).split()[0].lower() in name.lower()


def test_each_recorded_kernel_has_a_stem_that_a_search_finds() -> None:
    names = {kernel.name for trace in NAMES for kernel in record(trace).kernels}
    assert len(names) > 20
    assert [one for one in names if short_name(one).split()[0] not in one] == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("", "(no name)"),
        (" ", "(no name)"),
        ("a\x1b[31mb\n", "a\\x1b[31mb\\n"),
        ("evil\u202ekernel", "evil\\u202ekernel"),
        ("my kernel (second form)", "my kernel (second form)"),
        ("void f<a", "f"),
        ("void f<(", "f"),
        (">>>f(int)", "f"),
        ("operator()", "operator()"),
        ("(", "("),
        ("_Z", "_Z"),
        ("_ZN99f", "_ZN99f"),
        ("_ZN1fEv", "f"),
        ("_Z" + "9" * 5_000, "_Z" + "9" * 38 + "..." + "9" * 21),
        ("k" * 100, "k" * 40 + "..." + "k" * 21),
        ("nvjet_", "nvjet"),
        ("Cijk_", "Cijk_"),
        ("triton_poi_fused_", "triton_poi_fused"),
        ("std::enable_if<true, void>::type ns::f<int>(int)", "f"),
        ("void ns::Functor<int>::operator()<float>(float) const", "Functor"),
        ("foo_kernel(float*) [clone .kd]", "foo"),
    ],
)
def test_odd_names_are_told_in_one_plain_line(name: str, short: str) -> None:
    assert short_name(name) == short


HOSTILE = {
    "one letter": "a",
    "namespaces": "a::",
    "brackets that open": "<",
    "brackets that close": ">",
    "templates": "f<",
    "parentheses": "(a",
    "lambdas": "[lambda(",
    "casts": "(int)",
    "numbers": "1",
    "fused": "triton_poi_fused_a_",
    "signs": "_",
    "lengths": "_ZN1a",
    "lengths of nothing": "_ZN999",
    "literals": "_ZLi1",
    "tiles": "nvjet_1x1_",
    "cutlass": "cutlass_",
    "traits": "f<Kernel_traits<1",
    "triples": "cutlass::K<C<1>, C<1>, ",
    "control characters": "\x1b",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_of_a_megabyte_takes_no_longer_than_its_length(kind: str) -> None:
    """Beside a plain name of the same length in the same process: no absolute time."""
    piece = HOSTILE[kind]
    name = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    started = time.process_time()
    assert len(short_name(name)) <= 130
    assert time.process_time() - started < 2  # a quadratic rule takes minutes


def test_names_are_remembered_by_what_is_read_of_them() -> None:
    long = "void f<" + "a, " * 50_000
    assert short_name(long + "b>(int)") == short_name(long + "c>(int)") == "f"
