"""Where users run Spark, as far as it can be had here: docs/user/platforms.md."""
