"""`sparklag demo`: a producer, a PySpark query, the service, and their lag in a terminal."""
