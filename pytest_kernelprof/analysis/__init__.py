"""What a trace means: kernels, operators, waits, metrics, what bounds a call. Pure, no torch."""
