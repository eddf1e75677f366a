"""Queues, topics and the task event log as Spark tables; DataFrames as messages and tasks; the pipeline over the log.

It accesses Redis through `core/` and runs on executors without Django. Results in the project's database are in
`pipeline/`.
"""
