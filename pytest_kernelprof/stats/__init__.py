"""Intervals, ratios and margins: pure functions of numbers."""
