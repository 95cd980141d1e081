"""How code is run: devices, profiler sessions, host timings. The only room that imports torch,
and only when something is measured."""
