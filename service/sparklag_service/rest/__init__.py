"""The REST interface, from memory: no GET touches Kafka, but that of `/offsets`."""
