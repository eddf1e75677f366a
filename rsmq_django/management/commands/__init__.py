"""`manage.py rsmq_worker`, `rsmqctl` and the other commands with a project's settings.

They read options and call `worker/`, `cli/`, `core/` or `spark/`. `rsmqctl` without settings is in `cli/`.
"""
