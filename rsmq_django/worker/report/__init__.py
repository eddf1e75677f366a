"""What a worker tells others: log lines, signals, statistics, the event log; the server clock and the shared memory.

Nothing here decides anything, and nothing here fails a task.
"""
