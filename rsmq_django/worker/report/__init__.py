"""What a worker tells others: log lines, signals, statistics, the event log and the server clock they share.

Nothing here decides anything, and nothing here fails a task.
"""
