"""Lag events as they come: what the view read goes on to whoever follows."""
