"""Messages in Avro, as Confluent frames it. The `.avsc` files here are what is
registered."""
