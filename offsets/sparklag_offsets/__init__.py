"""Stored offsets: in Kafka's logs, Spark's checkpoints and the offset store; and how a query is
restored to them."""
