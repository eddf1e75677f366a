"""Background tasks for Django on Redis queues that every language can speak.

This module holds the version and nothing else: Spark executors and the command line import the package, and must not
pull in Django by doing so.
"""

__version__ = "0.1.0"
