"""Turns the query events of a Spark session, classic or Connect, into observations."""
