"""The parent process: starts, replaces and stops worker processes, recovers their messages, fires schedules.

Nothing here runs a task. What a worker process does itself is in `worker.py` one level up.
"""
