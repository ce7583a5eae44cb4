"""The messages on sparklag's topics: their fields, bounds, headers and names."""
