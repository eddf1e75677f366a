"""Settings of the processes that tests start. What differs from test to test comes in environment variables."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, REDIS_URL

# Without the outbox, whose relay would be one process more than most tests expect (tests/outbox/shop has it), and
# without the admin and what only it needs: hundreds of processes start with these settings.
INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app in ("rsmq_django", "django_tasks")), "tests.worker.site"]
ROOT_URLCONF = "tests.worker.site.urls"
MIDDLEWARE = []
TEMPLATES = []
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("RSMQ_TEST_DATABASE", ":memory:"),
        "CONN_MAX_AGE": int(os.environ.get("RSMQ_TEST_CONN_MAX_AGE", "0")),  # type: ignore[dict-item]
    }
}
if "RSMQ_TEST_DATABASES" in os.environ:
    DATABASES = json.loads(os.environ["RSMQ_TEST_DATABASES"])
RSMQ = {
    "CONNECTIONS": {
        "default": {
            "URL": os.environ.get("RSMQ_TEST_WORKER_URL") or REDIS_URL,
            "TIMEOUT_S": float(os.environ.get("RSMQ_TEST_TIMEOUT_S", "15")),
        },
        **json.loads(os.environ.get("RSMQ_TEST_CONNECTIONS", "{}")),
    },
    "QUEUES": {
        **json.loads(os.environ.get("RSMQ_TEST_QUEUES", '{"default": {}}')),
        **{f"q{number}": {} for number in range(int(os.environ.get("RSMQ_TEST_MORE_QUEUES", "0")))},
    },
    "RELIABLE": json.loads(os.environ.get("RSMQ_TEST_RELIABLE", "{}")),
    "TASKS": {"ENQUEUE_ON_COMMIT": False},  # type: ignore[dict-item]
    "SCHEDULES": json.loads(os.environ.get("RSMQ_TEST_SCHEDULES", "{}")),
    "EVENTS": json.loads(os.environ.get("RSMQ_TEST_EVENTS", "{}")),
}
