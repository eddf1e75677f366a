"""RSMQ queues: send, receive, browse, move, pause, retry, and jobs that send or take out very much.

What a message means, such as the call of a task, is decided in `rsmq_django.tasks`.
"""
