"""How near a call's kernels come to what the device can compute and move."""
