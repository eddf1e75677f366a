"""Where messages come from: RSMQ queues (`queues.py`), reliable queues (`reliable*.py`) and topics (`topic*.py`).

A source of queues fetches, settles and renews on one connection; what to do with a message is decided in `execute/`.
Topics have a thread for each consumer, which also runs its function and decides about retries.
"""
