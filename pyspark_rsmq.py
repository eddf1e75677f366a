"""How Spark finds `format("rsmq")` by itself: it imports every top-level module named `pyspark_*`.

One that fails to import would make the lookup of all Python formats fail, so nothing is imported here but what Spark
itself brings.
"""

from rsmq_django.spark.source import DefaultSource

__all__ = ["DefaultSource"]
