"""A profile beside its baseline: which kernels differ, what may be judged, and what follows."""
