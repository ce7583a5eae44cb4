"""What runs beside sparklag: the demo's PySpark query and producer, and a Kafka broker to try with.

The one package that uses pyspark's SQL API. Its programs run as processes of their own.
"""

from __future__ import annotations
