"""Kafka's brokers, asked by hand: connections, requests as bytes, and which brokers there are."""
