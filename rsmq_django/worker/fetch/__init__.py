"""When and from which queues to fetch: queues and their order, polling, wake-ups, and the fetch of an exchange.

Nothing here runs a task. Leases, outcomes and the other steps of an exchange are in `lease/`.
"""
