"""Started before sparklag is imported, and when it cannot be: imports nothing of it."""
