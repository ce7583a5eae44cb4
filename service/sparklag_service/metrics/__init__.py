"""`GET /metrics` and OpenTelemetry: every query's lag, and what the service says of itself.

Everything is read from the view: a scrape never touches Kafka.
"""
