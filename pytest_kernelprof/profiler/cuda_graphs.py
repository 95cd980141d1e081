"""What the CUDA graphs that a block replays consist of, looked at while they are captured.

Of the body of a WHILE node the profiler records the first iteration only (kineto #1062), and
nothing in a trace says that there was one; nor that each replay lacks the same kernel. So a replay
is known to be whole only where its graph was looked at: it has no conditional node, and a kernel
for each of its kernel nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from pytest_kernelprof.gpu.inventory import cuda_driver, load_torch
from pytest_kernelprof.profiler.autotuning import Method, listen
from pytest_kernelprof.records.recording import GraphNodes

_CAPTURING = 1
# CUgraphNodeType of the driver's interface, which never changes once it is out.
_KERNEL, _MEMCPY, _MEMSET, _CHILD_GRAPH, _CONDITIONAL = 0, 1, 2, 4, 13

_nodes_of: weakref.WeakKeyDictionary[Any, GraphNodes] = weakref.WeakKeyDictionary()
_counts_replays: weakref.WeakSet[Any] = weakref.WeakSet()
_counting: list[Replays] = []


def watch_captures() -> None:
    """Look at every graph that torch captures and replays from now on; nothing where torch is not
    loaded."""
    torch = sys.modules.get("torch")
    graph_type: Any = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    if listen(graph_type, "capture_end", _look_and_end):
        listen(graph_type, "raw_cuda_graph", _hand_out)
    replay = getattr(graph_type, "replay", None)
    if replay is not None and graph_type not in _counts_replays:
        _counts_replays.add(graph_type)  # once, whatever a test puts in place of its methods
        graph_type.replay = _counted(replay)


def _look_and_end(end: Method, graph: Any) -> None:
    nodes = None
    with contextlib.suppress(Exception):  # whatever it is, the capture is the user's
        nodes = _nodes_of_capture()
    end(graph)
    _note(graph, nodes)


def _hand_out(raw: Method, graph: Any) -> Any:
    _note(graph, None)  # who holds it may change it before it is instantiated
    return raw(graph)


def _counted(replay: Method) -> Method:
    """The same, with each call noted: by one function alone, as replays are timed."""

    @functools.wraps(replay)
    def count_and_replay(graph: Any) -> None:
        for counting in _counting:
            counting.seen.append(_nodes_of.get(graph))
        replay(graph)

    return count_and_replay


class Replays:
    """Notes the replays in a block with what is known of their graphs; use as a context manager.

    Replays are watched from ``watch_captures`` on, not from the block on: ``graph.replay`` that a
    test hands over is bound before the block begins.

    Attributes:
        seen: what the graph of each replay is made of; None where nobody saw it captured.
    """

    def __init__(self) -> None:
        self.seen: list[GraphNodes | None] = []

    def __enter__(self) -> Replays:
        _counting.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _counting.remove(self)


def tally_nodes(nodes: Callable[[Any], list[tuple[int, Any]]], graph: Any) -> GraphNodes:
    """What a graph and its child graphs are made of.

    Args:
        nodes: the type of each node of a graph, and of a child graph's node that graph.
    """
    kernels = copies = 0
    conditional = False
    for kind, child in nodes(graph):
        inside = tally_nodes(nodes, child) if kind == _CHILD_GRAPH else GraphNodes()
        kernels += inside.kernels + (kind == _KERNEL)
        copies += inside.copies + (kind in (_MEMCPY, _MEMSET))
        conditional |= inside.conditional or kind >= _CONDITIONAL  # or newer than this
    return GraphNodes(kernels, copies, conditional)


def _note(graph: Any, nodes: GraphNodes | None) -> None:
    if nodes is None:
        _nodes_of.pop(graph, None)
    else:
        _nodes_of[graph] = nodes


def _nodes_of_capture() -> GraphNodes | None:
    """What the graph is made of that the current stream is capturing; None where that cannot be
    seen."""
    driver: Any = cuda_driver()
    stream = ctypes.c_void_p(load_torch().cuda.current_stream().cuda_stream)
    status, graph = ctypes.c_int(), ctypes.c_void_p()
    done = driver.cuStreamGetCaptureInfo_v2(
        stream, ctypes.byref(status), None, ctypes.byref(graph), None, None
    )
    if done != 0 or status.value != _CAPTURING or not graph.value:
        return None
    return tally_nodes(_nodes, graph)


def _nodes(graph: ctypes.c_void_p) -> list[tuple[int, ctypes.c_void_p]]:
    """The types of a graph's nodes, each with its child graph.

    Raises:
        OSError: the driver did not answer.
    """
    driver: Any = cuda_driver()
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:
        _check(driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)))
    found = []
    for node in nodes:
        kind, child = ctypes.c_int(), ctypes.c_void_p()
        _check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        if kind.value == _CHILD_GRAPH:
            _check(driver.cuGraphChildGraphNodeGetGraph(ctypes.c_void_p(node), ctypes.byref(child)))
        found.append((kind.value, child))
    return found


def _check(code: int) -> None:
    if code != 0:
        raise OSError(f"the CUDA driver returned {code}")
