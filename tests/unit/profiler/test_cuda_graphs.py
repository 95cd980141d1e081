"""CUDA graphs are looked at while they are captured; their replays are told apart by that."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from pytest_kernelprof.profiler import cuda_graphs
from pytest_kernelprof.profiler.cuda_graphs import Replays, tally_nodes, watch_captures
from pytest_kernelprof.records.recording import GraphNodes

KERNEL, MEMCPY, MEMSET, HOST, CHILD, CONDITIONAL = 0, 1, 2, 3, 4, 13
PLAIN, LOOP = GraphNodes(1), GraphNodes(1, conditional=True)


class CUDAGraph:
    """torch's class without a GPU."""

    replayed = 0

    def capture_end(self) -> None:
        pass

    def raw_cuda_graph(self) -> int:
        return 7

    def replay(self) -> None:
        CUDAGraph.replayed += 1


@pytest.fixture(autouse=True)
def graph_type(monkeypatch: pytest.MonkeyPatch) -> type[CUDAGraph]:
    class Fresh(CUDAGraph):
        capture_end = CUDAGraph.capture_end
        raw_cuda_graph = CUDAGraph.raw_cuda_graph
        replay = CUDAGraph.replay

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Fresh)
    return Fresh


def captured(
    monkeypatch: pytest.MonkeyPatch, graph: CUDAGraph, nodes: GraphNodes | None
) -> CUDAGraph:
    monkeypatch.setattr(cuda_graphs, "_nodes_of_capture", lambda: nodes)
    graph.capture_end()
    return graph


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([], GraphNodes()),
        ([(KERNEL, None), (MEMSET, None), (MEMCPY, None), (HOST, None)], GraphNodes(1, 2)),
        ([(KERNEL, None), (CONDITIONAL, None)], GraphNodes(1, 0, conditional=True)),
        ([(99, None)], GraphNodes(conditional=True)),
        ([(CHILD, [(KERNEL, None)]), (KERNEL, None)], GraphNodes(2)),
        ([(CHILD, [(CHILD, [(CONDITIONAL, None)])])], GraphNodes(conditional=True)),
    ],
    ids=["empty", "kernels", "while", "of a later driver", "child", "while in a child"],
)
def test_nodes_are_tallied_with_those_of_child_graphs(nodes: Any, found: GraphNodes) -> None:
    assert tally_nodes(lambda graph: graph, nodes) == found


def test_replays_are_noted_with_what_was_seen_at_the_capture(
    graph_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = graph_type()
    captured(monkeypatch, before, PLAIN)  # nobody watches yet
    watch_captures()
    plain = captured(monkeypatch, graph_type(), PLAIN)
    loop = captured(monkeypatch, graph_type(), LOOP)
    unseen = captured(monkeypatch, graph_type(), None)
    CUDAGraph.replayed = 0
    with Replays() as found:
        for graph in (before, plain, plain, loop, unseen):
            graph.replay()
    plain.replay()
    assert found.seen == [None, PLAIN, PLAIN, LOOP, None]
    assert CUDAGraph.replayed == 6


def test_a_replay_that_is_handed_over_bound_before_the_block_counts(
    graph_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_captures()
    handed_over = captured(monkeypatch, graph_type(), PLAIN).replay
    with Replays() as found:
        handed_over()
    assert found.seen == [PLAIN]


def test_a_graph_that_is_captured_anew_or_handed_out_is_what_it_is_then(
    graph_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_captures()
    graph = captured(monkeypatch, graph_type(), PLAIN)
    captured(monkeypatch, graph, LOOP)
    with Replays() as found:
        graph.replay()
    assert found.seen == [LOOP]
    captured(monkeypatch, graph, PLAIN)
    assert graph.raw_cuda_graph() == 7
    with Replays() as found:
        graph.replay()
    assert found.seen == [None]


def test_captures_are_watched_once(graph_type: Any) -> None:
    watch_captures()
    first = graph_type.capture_end
    watch_captures()
    assert graph_type.capture_end is first


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_replay_counts_once_whatever_was_put_in_place_of_the_capture_for_a_while(
    graph_type: Any, wrapped: bool
) -> None:
    """Counted twice, it would stand in for a replay that nobody saw."""
    watch_captures()
    own = graph_type.capture_end

    def spy(graph: Any) -> None:
        own(graph)

    graph_type.capture_end = functools.wraps(own)(spy) if wrapped else spy
    watch_captures()
    graph_type.capture_end = own
    watch_captures()
    with Replays() as found:
        graph_type().replay()
    assert len(found.seen) == 1


def test_a_capture_that_cannot_be_looked_at_ends_as_ever(
    graph_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    watch_captures()
    monkeypatch.setattr(cuda_graphs, "cuda_driver", no_driver)
    graph = graph_type()
    graph.capture_end()
    with Replays() as found:
        graph.replay()
    assert found.seen == [None]


class Driver:
    """The driver's answers about one graph: a kernel, and a child graph with a loop."""

    def __init__(self, *, status: int = 1) -> None:
        self._status = status

    def cuStreamGetCaptureInfo_v2(self, stream: Any, status: Any, *rest: Any) -> int:  # noqa: N802
        status._obj.value = self._status
        rest[1]._obj.value = 100
        return 0

    def cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> int:  # noqa: N802
        inside = {100: [1, 2], 200: [3]}[graph.value]
        if nodes is not None:
            nodes[:] = inside
        count._obj.value = len(inside)
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:  # noqa: N802
        kind._obj.value = {1: KERNEL, 2: CHILD, 3: CONDITIONAL}[node.value]
        return 0

    def cuGraphChildGraphNodeGetGraph(self, node: Any, child: Any) -> int:  # noqa: N802
        child._obj.value = 200
        return 0


@pytest.mark.parametrize(
    ("status", "nodes"), [(1, GraphNodes(1, conditional=True)), (0, None), (2, None)]
)
def test_the_driver_is_asked_for_the_nodes_of_the_capture(
    status: int, nodes: GraphNodes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "cuda_driver", lambda: Driver(status=status))
    stream = type("Stream", (), {"cuda_stream": 5})()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    assert cuda_graphs._nodes_of_capture() == nodes
