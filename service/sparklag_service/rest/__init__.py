"""The REST interface. Every response is from memory: a request never touches Kafka."""
