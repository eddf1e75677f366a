"""When and from which queues to fetch: selection of queues, polling, wake-ups, and the steps of one exchange.

Nothing here runs a task or knows its options. Leases and outcomes are in `lease/`.
"""
