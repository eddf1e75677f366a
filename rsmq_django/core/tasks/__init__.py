"""Data of tasks in Redis in addition to queues: schedules, workflows, the outbox, records of worker processes.

Functions, settings and Django are in `rsmq_django.tasks`.
"""
