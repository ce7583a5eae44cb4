"""Measures the lag of observed queries, publishes it as events and serves it over REST."""
