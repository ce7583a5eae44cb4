"""A session of classic Spark, through Py4J. Implements the protocols of events/session.py."""
