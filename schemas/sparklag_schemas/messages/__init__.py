"""The messages on sparklag's topics: fields and their bounds, headers, limits, topics, names."""
