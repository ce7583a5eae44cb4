"""Puts a query back to where it was: Spark's `startingOffsets` from the store or a checkpoint."""
