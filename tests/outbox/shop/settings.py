"""Settings of the processes that tests of the outbox start."""

import json
import os

from tests.worker.site.settings import *  # noqa: F403
from tests.worker.site.settings import INSTALLED_APPS, RSMQ

INSTALLED_APPS = [*INSTALLED_APPS, "django.contrib.auth", "django.contrib.contenttypes"]  # whose tables tasks write to
INSTALLED_APPS += ["rsmq_django.outbox", "tests.outbox.shop"]
DATABASES = json.loads(os.environ.get("RSMQ_TEST_DATABASES", "{}"))
RSMQ = RSMQ | {  # type: ignore[assignment]
    "QUEUES": {"default": {"OUTBOX": True, "VISIBILITY_TIMEOUT_S": 10}},
    "TASKS": {"ENQUEUE_ON_COMMIT": True},  # type: ignore[dict-item]
    "OUTBOX": {"POLL_INTERVAL_S": float(os.environ.get("RSMQ_TEST_OUTBOX_POLL_INTERVAL_S", "0.05"))},
}
