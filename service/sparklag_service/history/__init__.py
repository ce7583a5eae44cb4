"""Totals of each query over time, in memory that has a ceiling."""
