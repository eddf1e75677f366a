"""Runs tasks. Only the command `rsmq_worker` and tests import this package; a web process never does."""
