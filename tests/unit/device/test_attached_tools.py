"""Other profiling tools, by what they leave in a process."""

from __future__ import annotations

from pytest_kernelprof.device.processes import injected_libraries, tools_of


def test_injected_libraries_are_named_once() -> None:
    tool = "/opt/nsight-systems/lib/libToolsInjection64.so"
    assert injected_libraries([tool, tool, "/usr/lib/libc.so.6"]) == ("libToolsInjection64.so",)


def test_a_tool_with_many_variables_is_named_once() -> None:
    names = ["NSYS_PROFILING_SESSION_ID", "NSYS_TARGET", "CUDA_INJECTION64_PATH", "HOME"]
    assert tools_of(names) == ["Nsight Systems", "a library from CUDA_INJECTION64_PATH"]
