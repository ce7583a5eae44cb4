"""Which events are due, and the topics they are written to."""
