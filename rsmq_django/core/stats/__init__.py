"""Depths and counters: one type for the depth of queues, reliable queues and topic groups, and the history of counters.

Scripts and calls of one structure are in the package of that structure, not here.
"""
