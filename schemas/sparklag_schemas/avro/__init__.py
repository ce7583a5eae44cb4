"""Messages in Avro with Confluent's framing, and the registry of their schemas."""
