"""What Spark computes: functions from DataFrame to DataFrame, which read and write nothing."""
