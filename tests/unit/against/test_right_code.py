"""Whether the code that runs in the process of the reference is the revision's."""

from __future__ import annotations

import pytest
from records import kernel, profile

from pytest_kernelprof.against.copies import Copies
from pytest_kernelprof.against.mapping import Mapping
from pytest_kernelprof.against.right_code import RightCode
from pytest_kernelprof.schema.against import Laid, Launch
from pytest_kernelprof.schema.run import Test

LAID = Laid("main", "/r", "/t", "/f", tests=("tests/model.py", "tests/test_it.py"))
OURS, CODE = "/t/tests/model.py:3", "/t/pkg/mlp.py:3"


def right_code(python: str = "") -> RightCode:
    return RightCode(Launch(LAID, (), "/t", python), Mapping("/r", "/t"), Copies("/t"))


@pytest.mark.parametrize(
    ("sources", "files"),
    [
        ((OURS, "/t/tests/test_it.py:9"), ("tests/model.py", "tests/test_it.py")),
        ((OURS, CODE), ()),
        ((OURS, ""), ()),
        ((), ()),
    ],
)
def test_code_that_lies_among_the_tests_is_noticed(
    sources: tuple[str, ...], files: tuple[str, ...]
) -> None:
    kernels = [kernel("mul", "aten::mul", source=source) for source in sources]
    test = Test("t.py::a", (profile(kernels),))
    assert right_code().lines_of_today(test) == files
    assert right_code(python="/env/bin/python").lines_of_today(test) == ()
    assert right_code().lines_of_today(None) == ()


def test_of_compiled_code_the_line_of_the_call_says_nothing() -> None:
    fused = kernel("triton_fused", "Torch-Compiled Region: 0/0", source=OURS)
    assert right_code().lines_of_today(Test("t.py::a", (profile([fused]),))) == ()
