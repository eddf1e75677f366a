"""Spark computations: functions from DataFrame to DataFrame.

Nothing here reads or writes: files are in `lake.py`, Redis in `readers.py` and `writers.py` one level up.
"""
