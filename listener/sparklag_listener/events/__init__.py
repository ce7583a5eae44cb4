"""From Spark's query events to observations, whatever kind of session they come from."""
