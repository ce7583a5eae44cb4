"""Programs beside sparklag: the demo, a local Kafka broker, the history of lag, and its reports.

Only this package uses pyspark's SQL API. Its programs run in their own processes.
"""
