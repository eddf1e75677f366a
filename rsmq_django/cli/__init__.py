"""`rsmqctl`: RSMQ queues from the command line, without Django.

`app` is the door; commands stand in one module per group. What several of them need is `session` (which server, which
form of output), `options`, `output` and `failures`. `manage.py rsmqctl` is the same tree with a project's settings.
"""
