"""Publishes the lag events that are due, and creates the topics for them."""
