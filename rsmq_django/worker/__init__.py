"""Runs tasks: the main loop (`worker.py`), its end (`stopping.py`), and six packages that each do a part of it.

Only the command `rsmq_worker`, the test kit and tests import this package; a web process never does.
"""
