"""Settings of senders and workers; the connection comes from the scenario."""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app in ("rsmq_django", "django_tasks")), "tests.faults.project"]
ROOT_URLCONF = "tests.faults.project.settings"
urlpatterns: list[object] = []
MIDDLEWARE = []
TEMPLATES = []
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
QUEUE: dict[str, object] = {"VISIBILITY_TIMEOUT_S": 3}
SHARDS = {"SHARDS": int(os.environ.get("RSMQ_FAULTS_SHARDS", "1"))}
RSMQ = {
    "CONNECTIONS": {"default": json.loads(os.environ.get("RSMQ_FAULTS_CONNECTION", "{}"))},
    "QUEUES": {"default": {**QUEUE, **SHARDS}, "raw": QUEUE},
    "RELIABLE": {"parcels": {"LEASE_S": 3}},
    "TASKS": {"ENQUEUE_ON_COMMIT": False},  # type: ignore[dict-item]
    "SCHEDULES": {"tick": {"TASK": "tests.faults.project.tasks.tick", "EVERY_S": 1}},
}
