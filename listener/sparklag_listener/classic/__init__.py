"""A session of classic Spark, through Py4J."""
