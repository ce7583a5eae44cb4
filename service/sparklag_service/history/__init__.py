"""The lag that was: totals of each query over time, in memory that has a ceiling."""
