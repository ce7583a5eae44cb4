"""Offsets that are kept: by Kafka in its logs, by Spark in checkpoints, by us in a store; and how a
query is put back to them."""
