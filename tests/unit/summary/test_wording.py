"""Facts in a few words."""

from __future__ import annotations

import pytest

from pytest_kernelprof.summary import wording

ENGINE, GRAPH = "autograd::engine::evaluate_function: Mm", "## Call CompiledFxGraph f1 ##"


@pytest.mark.parametrize(
    ("operators", "own", "told"),
    [
        ((), "", ()),
        (("aten::mm",), "", ("aten::mm",)),
        (("aten::mm", "aten::matmul", "aten::linear"), "", ("aten::mm", "aten::linear")),
        (("aten::mm", "aten::linear"), "aten::mm", ("aten::linear",)),
        (("aten::mm",), "aten::mm", ()),
        (("aten::mm", "MmBackward0", ENGINE), "", ("aten::mm", "MmBackward0")),
        ((GRAPH, "aten::mm", GRAPH), "", ("aten::mm",)),
        (("f in g", "h"), "", ("f in g", "h")),
    ],
)
def test_of_a_chain_the_innermost_and_the_outermost_caller_are_told(
    operators: tuple[str, ...], own: str, told: tuple[str, ...]
) -> None:
    assert wording.chain(operators, own) == " in ".join(told)
