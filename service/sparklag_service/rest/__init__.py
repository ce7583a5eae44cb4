"""The REST interface. Everything is answered from memory: a request never touches Kafka."""
