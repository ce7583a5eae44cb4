"""Restores a query's position: Spark's `startingOffsets` from the store or a checkpoint."""
