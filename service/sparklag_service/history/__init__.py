"""Totals of each query over time, in bounded memory."""
