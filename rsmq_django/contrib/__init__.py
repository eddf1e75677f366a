"""Middleware for services of other projects, each of which needs a package of its own.

Middleware that needs no other package is in `rsmq_django.tasks.middleware`.
"""
