"""The pages of Django's admin about what is in Redis. They read it live and mirror nothing.

Django imports this package when the admin looks for models to register. `site.py` knows what all pages share; each
module that is imported here registers one model.
"""

from . import messages, queues, reliable_queues, results, schedules, tasks, topics, workers, workflows

__all__ = ["messages", "queues", "reliable_queues", "results", "schedules", "tasks", "topics", "workers", "workflows"]
