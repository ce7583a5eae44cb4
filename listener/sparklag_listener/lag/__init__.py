"""The lag of queries in the driver itself: read, as tables, and shown in a notebook."""
