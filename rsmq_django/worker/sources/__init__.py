"""Where messages come from: one module per structure (RSMQ queues, reliable queues, topics).

A source fetches, settles and renews on one connection. What to do with a message is decided in `execute/`.
"""
