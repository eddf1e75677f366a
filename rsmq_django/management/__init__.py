"""Management commands of the application `rsmq_django`, one module each in `commands/`.

`cli/` has the operator commands that need Django, and what those in `rsmq_django/cli/` need to know about the settings.
The outbox has an entrance of its own (`outbox/management/`).
"""
