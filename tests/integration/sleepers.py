"""Callables whose times are too far apart for a busy machine to confuse them.

There a sleep of 2 ms may take 16 ms, and so may one of 8 ms.
"""

SLEEPERS = """
import time
def quick(*args, **kwargs): time.sleep(0.001)
def slow(*args, **kwargs): time.sleep(0.03)
def same(*args, **kwargs): time.sleep(0.001)
"""
