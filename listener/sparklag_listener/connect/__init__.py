"""A session of Spark Connect."""
