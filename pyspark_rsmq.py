"""Registration of `format("rsmq")`: Spark imports every top-level module named `pyspark_*`.

A failed import would make the lookup of all Python formats fail, so only modules that Spark provides are imported
here.
"""

from rsmq_django.spark.source import DefaultSource

__all__ = ["DefaultSource"]
