"""Requests and responses as bytes, by Kafka's protocol guide. Pure."""
