"""Queues, topics and the task event log as Spark tables; DataFrames as messages and tasks; the pipeline over the log.

It accesses Redis through `rsmq_django.core` and does not use Django, so it runs on executors without Django. Only
`source`, `session`, `tables` and `transform` import Spark, and Spark imports only `pyspark_rsmq`.
"""
