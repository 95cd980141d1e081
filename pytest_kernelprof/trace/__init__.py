"""What was recorded: the Chrome trace, its links, its completeness. Pure: no torch here."""

from pytest_kernelprof.trace.completeness import Integrity, check_integrity
from pytest_kernelprof.trace.model import Trace
from pytest_kernelprof.trace.reader import read_trace

__all__ = ["Integrity", "Trace", "check_integrity", "read_trace"]
