"""The parent process: starts, replaces and stops worker processes, recovers their messages, fires schedules.

Nothing here runs a task. The main loop of a worker process is in `worker.py` one level up; `report/shared_state.py` is
the memory that both share.
"""
