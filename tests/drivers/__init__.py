"""Spark drivers that tests run as processes of their own."""
