"""The history of lag: the events of `consumer-lag` in permanent tables, and roll-ups by time."""
