"""Runs one message: find its function, check limits, call it, decide on the outcome.

Nothing here talks to Redis about messages; outcomes go to the source through `AckSink`.
"""
