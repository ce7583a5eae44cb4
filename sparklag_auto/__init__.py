"""Runs before sparklag is imported, or where it cannot be; imports nothing of sparklag."""
