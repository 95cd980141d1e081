"""The process groups of ``torch.distributed``, as torch holds them.

Its functions are not asked: tests of code for several ranks patch them, to run on one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.device.inventory import load_torch
from pytest_kernelprof.errors import IncompleteProfile, MarkerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_C10D = "torch.distributed.distributed_c10d"
_PREFIX = "kernelprof"
_FORM = "group= takes a torch.distributed group that this rank is in, or ranks, such as [0, 1]"
_THREADS = (
    "ranks that are threads of one process cannot be profiled, since a profiler records the work "
    "of all of them: give each rank its own process (MultiProcessTestCase)"
)


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of the default group.

    Attributes:
        c10d: torch's module of process groups. group: the default one.
    """

    c10d: ModuleType
    group: Any

    @property
    def rank(self) -> int:
        """The number of this one."""
        return int(self.group.rank())

    @property
    def size(self) -> int:
        """How many they are."""
        return int(self.group.size())

    @property
    def is_made_up(self) -> bool:
        """Whether only this rank exists: the backend ``fake`` stands for the others."""
        config = self.c10d._world.pg_backend_config.get(self.group, "")
        kinds = {one.rpartition(":")[2] for one in str(config).split(",")}
        return kinds == {"fake"}

    @property
    def is_of_threads(self) -> bool:
        """Whether they are threads of this process, as PyTorch's MultiThreadedTestCase has them."""
        name = self.c10d._world.pg_map[self.group][0]
        return type(self.c10d._world).__name__ != "_World" or name == "threaded"

    @property
    def store(self) -> Any:
        """What the ranks leave each other there is ours alone.

        Raises:
            IncompleteProfile: the group has none, as with MPI.
        """
        name, store = self.c10d._world.pg_map[self.group]
        if store is None:
            raise IncompleteProfile(
                f"ranks agree through the store of torch.distributed, and the backend {name} has "
                "none: initialise it with nccl or gloo"
            )
        return self.c10d.PrefixStore(_PREFIX, store)

    def ranks_of(self, group: object) -> tuple[int, ...]:
        """Those that a group names, in order.

        Raises:
            MarkerError: it is no group and no ranks, or this rank is not among them.
        """
        if group is None:
            return tuple(range(self.size))
        ranks = self._named(group)
        if self.rank not in ranks:
            raise MarkerError(f"group={group!r}: this is rank {self.rank}, not in it. {_FORM}")
        return ranks

    def _named(self, group: object) -> tuple[int, ...]:
        if isinstance(group, Sequence) and not isinstance(group, str):
            known = range(self.size)
            if group and all(isinstance(one, int) and one in known for one in group):
                return tuple(sorted(set(group)))
            raise MarkerError(f"group={group!r}: expected ranks below {len(known)}. {_FORM}")
        if isinstance(group, self.c10d.ProcessGroup):
            return tuple(sorted(self.c10d._world.pg_group_ranks.get(group, ())))
        raise MarkerError(f"group={group!r}: got {type(group).__name__}. {_FORM}")

    def backends(self, name: str) -> Iterator[Any]:
        """The backends of that name of all groups that this rank is in."""
        torch = sys.modules["torch"]
        for group in list(self.c10d._world.pg_map):
            for device in ("cpu", "cuda"):
                with contextlib.suppress(RuntimeError, AttributeError):
                    backend = group._get_backend(torch.device(device))
                    if backend.name() == name:
                        yield backend


def world_of_several() -> World | None:
    """The ranks of this program, where it has several; torch is not imported."""
    found = _initialised()
    return None if found is None or found.size < 2 or found.is_made_up else found


def taking_part(group: object) -> tuple[int, ...]:
    """The ranks that make a call together: those of a group, by default all.

    Raises:
        MarkerError: ``group`` is no group and no ranks, or this rank is not among them.
        IncompleteProfile: ranks are threads.
    """
    ranks = world_of_several()
    if ranks is None:
        _refuse_others(group)
        return (0,)
    if ranks.is_of_threads:
        raise IncompleteProfile(_THREADS)
    return ranks.ranks_of(group)


def _initialised() -> World | None:
    """The default group, of however many ranks."""
    c10d = sys.modules.get(_C10D)
    kind = getattr(c10d, "ProcessGroup", None)
    group = getattr(getattr(c10d, "_world", None), "default_pg", None)
    if c10d is None or not isinstance(kind, type) or not isinstance(group, kind):
        return None
    return World(c10d, group)


def _refuse_others(group: object) -> None:
    """Where one rank runs code for several, only a group that it is in makes sense.

    Raises:
        MarkerError: it is none.
    """
    if group is None or (isinstance(group, Sequence) and list(group) == [0]):
        return
    one = _initialised()
    if one is None:
        raise MarkerError(f"group={group!r}: torch.distributed has one rank here. {_FORM}")
    one.ranks_of(group)


_HOST = "127.0.0.1"


@contextlib.contextmanager
def hosted_store(size: int) -> Iterator[int]:
    """The store of a process group, in this process, which outlives any rank; its port."""
    dist = load_torch().distributed
    store = dist.TCPStore(_HOST, 0, size, is_master=True, wait_for_workers=False)
    yield store.port


@contextlib.contextmanager
def in_group(rank: int, size: int, backend: str, port: int) -> Iterator[None]:
    """Be a rank of the default group; with NCCL on the GPU of its number."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(port),
    )
    torch = load_torch()
    given: dict[str, Any] = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        given["device_id"] = torch.device("cuda", rank)
    store = torch.distributed.TCPStore(_HOST, port, size, is_master=False)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, **given)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
