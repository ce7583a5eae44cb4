"""Messages in Avro, framed as Confluent does it, and the registry of their schemas."""
