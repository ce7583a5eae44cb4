"""The mirror to Kafka: commits the positions of queries to their own consumer groups."""
