"""The offset store: the offset ranges of every batch, in a database outside Spark."""
