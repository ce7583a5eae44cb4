"""Measures the lag of observed queries, publishes it as events and answers over REST."""
