"""Redis behind Django's QuerySet: what stock admin pages read when their models are not in a database.

`queryset.py` replaces what would run SQL, `conditions.py` understands filters, and one source per model (`queues.py`,
`messages.py`, `workers.py`, `results.py`) turns what is asked for into calls of `core`. Nothing here writes to Redis.
"""
