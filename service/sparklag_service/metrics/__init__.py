"""`GET /metrics` and OpenTelemetry: every query's lag, and the service's own metrics.

All metrics come from the view: a scrape never reads Kafka.
"""
