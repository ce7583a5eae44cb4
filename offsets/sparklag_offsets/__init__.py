"""Stored offsets, in Spark's checkpoints and the offset store, and restoring a query to them."""
