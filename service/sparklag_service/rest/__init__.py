"""The REST interface. It responds from memory: only GET of `/offsets` reads Kafka."""
