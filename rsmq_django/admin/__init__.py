"""The pages of Django's admin about queues, messages, workers and results. They read Redis live and mirror nothing.

Django imports this package when the admin looks for models to register. `site.py` knows what all pages share;
`queues.py`, `messages.py`, `workers.py` and `results.py` register one model each.
"""

from . import messages, queues, results, workers

__all__ = ["messages", "queues", "results", "workers"]
