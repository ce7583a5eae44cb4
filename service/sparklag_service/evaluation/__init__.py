"""What is said of a query, from where it is, what Kafka said, and what it did before. Pure."""
