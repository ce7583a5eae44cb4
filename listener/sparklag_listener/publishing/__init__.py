"""Observations on their way to `processed-offsets`."""
