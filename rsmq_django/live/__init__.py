"""Redis behind Django's QuerySet: the rows that standard admin pages read when their models are not in a database.

`queryset.py` replaces the methods that would run SQL, `conditions.py` interprets filters, and one source per model
(`queues.py`, `messages.py`, `workers.py`, `results.py`) turns a selection into calls of `core`. Nothing here writes to
Redis.
"""
