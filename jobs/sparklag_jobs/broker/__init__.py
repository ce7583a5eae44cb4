"""A real Kafka broker on this machine: its jars, its configuration, its process."""
