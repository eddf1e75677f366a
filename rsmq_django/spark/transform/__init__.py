"""Spark computations: functions from DataFrame to DataFrame without input or output."""
