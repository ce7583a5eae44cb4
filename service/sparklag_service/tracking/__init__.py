"""The last observation of each query. Pure."""
