"""Management commands of the application `rsmq_django`, one module each in `commands/`.

The outbox has a command of its own (`outbox/management/`). Nothing but commands is here.
"""
