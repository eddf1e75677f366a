"""RSMQ queues: send, receive, browse, move, pause, retry, and bulk jobs that send or drain any number of messages.

The content of a message, for example the call of a task, is defined in `rsmq_django.tasks`.
"""
