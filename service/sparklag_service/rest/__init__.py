"""The REST interface. Every response is from memory: no GET but that of `/offsets`
touches Kafka."""
