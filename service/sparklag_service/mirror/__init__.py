"""The mirror to Kafka: what queries have processed, committed to consumer groups of their own."""
