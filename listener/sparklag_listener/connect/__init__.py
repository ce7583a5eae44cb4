"""A session of Spark Connect, through its client. Implements the protocols of events/session.py."""
