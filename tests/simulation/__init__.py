"""The service's own code on a virtual clock and a simulated Kafka: see README.md."""
