"""`rsmqctl`: RSMQ queues from the command line, without Django.

`app` is the entry point; each command group has a module. Shared modules: `session` (server and output format),
`options`, `output` and `failures`. `manage.py rsmqctl` runs the same commands with a project's settings.
"""
