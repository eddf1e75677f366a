"""What tasks need in Redis beside a queue: schedules, workflows, the outbox, processes of workers.

Functions, settings and Django are in `rsmq_django.tasks`.
"""
