"""Messages leased by a worker process: renewals, outcomes to settle, their steps, and the record of them in Redis.

Which messages to fetch is decided in `fetch/`, their outcomes in `execute/`.
"""
