"""Queues, topics and the task event log as Spark tables; DataFrames as messages and tasks; the pipeline over the log.

Knows Redis through `rsmq_django.core` and nothing of Django, so all of it runs on executors that have neither. Only
`source`, `session`, `tables` and `transform` import Spark, and only `pyspark_rsmq` is imported by it.
"""
