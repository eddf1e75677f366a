"""`rsmqctl`: RSMQ queues from the command line. `app` is the entry point, each command group has a module.

Nothing here imports Django: `manage.py rsmqctl` (`management/`) runs the same commands with a project's settings.
"""
