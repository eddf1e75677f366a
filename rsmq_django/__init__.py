"""Background tasks for Django on Redis queues, in a format with clients in many languages.

This module contains only the version: Spark executors and the command line import the package, and must not import
Django.
"""

__version__ = "0.1.0"
