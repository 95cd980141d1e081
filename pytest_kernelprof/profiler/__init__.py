"""How code is run: profiler sessions, host timings, what was left at work. Torch is imported only
when something is measured."""
