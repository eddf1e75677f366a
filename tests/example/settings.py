"""The example project's own settings, on the private server of the test run.

The tests in this directory run in a pytest process of their own (see `test_example.py`), because a process has one
set of installed apps, and the example should be tested with its own.
"""

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import RSMQ
from tests import redis_server

SERVER_URL = os.environ.get("RSMQ_TEST_URL") or redis_server.URL
RSMQ = {**RSMQ, "CONNECTIONS": {"default": {"URL": SERVER_URL, "TIMEOUT_S": 15, "NAMESPACE": "rsmq"}}}
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
