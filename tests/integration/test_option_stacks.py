"""The option --kernelprof-stacks: one-shot profiles name source lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


WHOLE_CALL = "@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n"
REGION = (
    "@pytest.mark.max_kernels(2)\ndef test_it(kernel_profile):\n"
    "    with kernel_profile.region('it'): three()\n"
)
BLOCKS = pytest.mark.parametrize("code", [WHOLE_CALL, REGION], ids=["whole call", "region"])


@BLOCKS
def test_with_it_each_kernel_has_its_line(run: Run, code: str) -> None:
    result = run(code, "--kernelprof-stacks")
    result.stdout.fnmatch_lines(
        [
            "  1 * aten::mm * test_it.py:*",
            "  2 * aten::gelu * test_it.py:*",
            "  3 * aten::add * test_it.py:*",
        ]
    )


@BLOCKS
def test_without_it_each_has_that_of_the_block_in_parentheses(run: Run, code: str) -> None:
    run(code).stdout.fnmatch_lines(["  1 * aten::mm *(test_it.py:*)*"])


@pytest.mark.project(WHOLE_CALL, "--kernelprof-stacks")
def test_with_workers_it_is_the_same(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.stdout.fnmatch_lines(["  1 * aten::mm * test_it.py:*"])
