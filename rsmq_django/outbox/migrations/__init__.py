"""Migrations of the outbox: the tables of rows to send and of finished tasks.

Projects that do not install `rsmq_django.outbox` do not have them.
"""
