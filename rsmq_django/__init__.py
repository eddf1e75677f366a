"""The package rsmq_django: background tasks for Django on Redis queues, in a format with clients in many languages.

This module contains only the version: Spark executors and the command line import the package without Django.
"""

__version__ = "0.1.0"
