"""Runs one message: find its function, check limits, call it, decide on the outcome.

Nothing here receives, renews or settles a message: outcomes go to the source through `AckSink`. Only the limits and the
arguments of workflow members need Redis here.
"""
