"""How a callable is measured: what to take, what to do next, and the doing of it."""
