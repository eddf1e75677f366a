"""From a call to Redis and back: calls as data, clients, connections, clusters, listeners.

Nothing here knows a queue or a topic.
"""
