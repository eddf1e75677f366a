"""Runs tasks. Only the command `rsmq_worker`, the test kit and tests import this package; a web process never does."""
