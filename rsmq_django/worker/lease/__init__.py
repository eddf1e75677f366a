"""Messages leased by a worker process: renewals, outcomes that are not yet settled, and the record of them in Redis.

Which messages to fetch is decided in `fetch/`, their outcomes in `execute/`.
"""
