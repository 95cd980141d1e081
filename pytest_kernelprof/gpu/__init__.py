"""The machine: its GPUs, their state, and the lock that shares them."""
