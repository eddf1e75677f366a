"""Where messages come from: RSMQ queues (`queues.py`), reliable queues (`reliable*.py`) and topics (`topic*.py`).

A source (`source.py`) fetches, settles and renews on one connection; what to do with a message is decided in
`execute/`.
"""
