"""What runs of a TorchScript graph without leaving an operator in a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.capture.compiled_code import CompiledCode
from pytest_kernelprof.device.inventory import load_torch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# torch.jit.optimize_for_inference calls MKL-DNN past the dispatcher.
_PAST_THE_DISPATCHER = ("prim::mkldnn", "prim::MKLDNN")

_PARTITION = (
    "a oneDNN partition of a TorchScript graph ran as one event, whatever it computes; without "
    "torch.jit.enable_onednn_fusion(True) its operators are in the trace"
)
_FUSED = (
    "TorchScript's fuser (NNC) ran a group of operators as one event, whatever it computes; "
    "without torch._C._jit_override_can_fuse_on_cpu(True) its operators are in the trace"
)
_PAST = (
    "a TorchScript module ran operators that leave no event in the trace ({}): "
    "torch.jit.optimize_for_inference put them there; profile the module without it"
)


@dataclass(slots=True)
class Scripts:
    """The TorchScript methods that were called."""

    _past: set[str] = field(default_factory=set)

    def look(self, method: Any) -> None:
        """Look at the graph of a method that is called."""
        kinds = set(_kinds(method.graph))
        self._past.update(kind for kind in kinds if kind.startswith(_PAST_THE_DISPATCHER))

    def code(self, operators: Collection[str]) -> CompiledCode:
        """What ran unseen, by the names of operators in the rounds as well."""
        partitions = any(name.startswith("LlgaPartition_") for name in operators)
        unseen = (_PARTITION,) if partitions and load_torch()._C._jit_llga_enabled() else ()
        groups = any(name.startswith("fused_") for name in operators)
        fused = (_FUSED,) if groups and load_torch()._C._jit_can_fuse_on_cpu() else ()
        past = (_PAST.format(", ".join(sorted(self._past))),) if self._past else ()
        return CompiledCode(unseen=(*unseen, *fused, *past))


def _kinds(block: Any) -> Iterator[str]:
    """The kinds of all nodes, without the text of the graph: to print constants runs operators."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)
