"""What a launch inside of an annotation costs a process for ever, by torch.profiler alone.

Profiles of the same kernels are taken by hand, in turn with and without a ``record_function``
around them, each kind in a process of its own. What the C library says is in use is read before and
after, so memory that waits to be used again does not count. It is why a round of ours is marked at
its two ends instead of being annotated as a whole.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import subprocess
import sys

from harness import device_and_place, table

from pytest_kernelprof.gpu.inventory import load_torch, why_no_gpu

KINDS = ("bare", "annotated")
WARM_UP = 10


class Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def in_use() -> int:
    """Bytes of the C heap and of its own mappings that are not free."""
    gc.collect()
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = Mallinfo2
    found = libc.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def grown(kind: str, profiles: int, launches: int) -> int:
    """Bytes by which that many profiles made this process grow."""
    torch = load_torch()
    x = torch.zeros(16, device="cuda")
    activities = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)

    def around() -> contextlib.AbstractContextManager[object]:
        if kind == "bare":
            return contextlib.nullcontext()
        return torch.profiler.record_function("work")  # type: ignore[no-any-return]

    def one() -> None:
        with torch.profiler.profile(activities=activities):
            with around():
                for _ in range(launches):
                    x.add(1)
            torch.cuda.synchronize()

    for _ in range(WARM_UP):
        one()
    before = in_use()
    for _ in range(profiles):
        one()
    return in_use() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", type=int, default=60)
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        print(grown(options.kind, options.profiles, options.launches))
        return
    if reason := why_no_gpu():
        raise SystemExit(f"launches are a GPU's: {reason}")
    rows = []
    for kind in KINDS:
        sizes = [f"--profiles={options.profiles}", f"--launches={options.launches}"]
        done = subprocess.run(
            [sys.executable, __file__, f"--kind={kind}", *sizes],
            check=True,
            capture_output=True,
            text=True,
        )
        more = int(done.stdout.splitlines()[-1])
        each = more / options.profiles / options.launches
        rows.append([kind, f"{more / 1e6:+.1f}", f"{each:.0f}"])
    print(f"{options.profiles} profiles of {options.launches:,} launches, by torch.profiler alone")
    print(device_and_place("cuda"))
    print()
    print(table(["launches", "MB more in use", "bytes a launch"], rows))


if __name__ == "__main__":
    main()
