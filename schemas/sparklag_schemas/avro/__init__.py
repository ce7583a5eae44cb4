"""Messages in Avro, as Confluent frames them. The `.avsc` files here are registered."""
