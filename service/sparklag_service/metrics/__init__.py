"""`GET /metrics` and OpenTelemetry: every query's lag, and the service's own metrics.

Everything is read from the view: a scrape never touches Kafka.
"""
