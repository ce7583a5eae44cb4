"""The newest lag event of every query, read from `consumer-lag`."""
