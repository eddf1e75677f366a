"""Management commands of the application `rsmq_django.outbox`, in `commands/`.

All other commands are in `rsmq_django/management/`.
"""
