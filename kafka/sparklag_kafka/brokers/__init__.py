"""Connections to a cluster's brokers, and the requests that aiokafka's clients do not have."""
