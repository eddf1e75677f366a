"""When and from which queues to fetch: queues and their order, polling, wake-ups, and the steps of one exchange.

Nothing here runs a task. Leases and outcomes are in `lease/`.
"""
