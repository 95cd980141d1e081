"""How the programs of one launch share work and hand results to each other, with no deadlock.

A kernel of two phases (the hidden layer, then the output) in one launch needs the second phase
to see what other programs wrote in the first. A grid barrier would need all programs on the GPU
at once, which nobody promises when another stream holds some of its SMs. Tickets need no such
promise: work is numbered so that each tile comes after all that it waits for, and a program
draws the next number when it is free. Whoever waits, then, waits for tiles whose tickets were
drawn before, by programs that are running; the lowest unfinished ticket waits for nobody, so
something always moves, with any number of programs on the GPU, one included.

All counters lie in one int32 slot of `workspace`, zeroed before the launch and after it:

    slot[0]   the next ticket          slot[1]   programs that have left
    slot[2:]  counters of the kernel's own, such as "tiles of h ready in row block i"

What a counter announces must be seen by whoever reads the counter. Four things see to that:

1. A **barrier** before the release. A program's tile is stored by all of its threads, but an
   atomic on one number is done by one of them, and a release orders only what that thread wrote
   or has been told of. The barrier is how it is told. Without it the answer is nearly always right.
2. The **release** and the **acquire** on the counter, at GPU scope: what came before the one is
   seen after the other, in all SMs.
3. A barrier after the acquire, which Triton itself puts there: one thread polls, and all
   threads of the program get what it read through shared memory.
4. **Proxy fences**, where TMA reads what ordinary stores wrote. TMA goes to memory another way
   (the async proxy), which neither release nor acquire covers. The writers' side fences their
   stores before the barrier; the readers' side fences after the acquire and before the load.
"""

from __future__ import annotations

import triton
import triton.language as tl

TICKET: tl.constexpr = tl.constexpr(0)
LEFT: tl.constexpr = tl.constexpr(1)
COUNTERS: tl.constexpr = tl.constexpr(2)
"""Where in a slot the next ticket lies, the count of programs that left, and the counters."""

HEADER_INTS = 2
"""How many numbers of a slot come before the kernel's own counters, for host code."""


@triton.jit
def take_ticket(slot):
    """Draw the next ticket: 0, 1, 2, .. in all programs together, each once.

    Relaxed: a ticket says who works on what; it announces no data.
    """
    return tl.atomic_add(slot + TICKET, 1, sem="relaxed", scope="gpu")


@triton.jit
def proxy_fence():
    """Order this thread's ordinary accesses to global memory with TMA's, both ways."""
    tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;",
        "=r",
        [],
        dtype=tl.int32,
        is_pure=False,  # else it would be removed: nobody reads the 0
        pack=1,
    )


@triton.jit
def barrier():
    """All threads of this program, or of this group of warps, come here before any goes on.

    Gluon has had two names for it; a function of Triton's may be called from both.
    """
    tl.debug_barrier()


@triton.jit
def publish(counter):
    """Add 1 to the counter, after all stores of this group of warps, for readers that use TMA."""
    proxy_fence()
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait_for(counter, count):
    """Wait until the counter has reached ``count``; then see by TMA what was stored before that.

    Adding 0 is how Triton spells an atomic load, and the compiler makes one of it (``ld.acquire``).
    """
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < count:
        pass
    proxy_fence()
