"""Communication with Redis: calls as data, clients, connections, clusters, listeners.

Independent of queues and topics.
"""
