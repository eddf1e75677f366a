"""Settings of senders and workers; the connection comes from the scenario."""

import json
import os
from pathlib import Path

import rsmq_django
from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app in ("rsmq_django", "django_tasks")), "tests.faults.project"]
ROOT_URLCONF = "tests.faults.project.settings"
urlpatterns: list[object] = []
MIDDLEWARE = []
TEMPLATES = []
SQLITE: dict[str, object] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = {"default": json.loads(os.environ.get("RSMQ_FAULTS_DATABASE", "null")) or SQLITE}  # type: ignore[dict-item]
HAS_OUTBOX = DATABASES["default"] is not SQLITE
INSTALLED_APPS += ["rsmq_django.outbox"] * HAS_OUTBOX
# An older release beside this one must not run its package.
assert Path(rsmq_django.__file__).resolve().is_relative_to(Path.cwd()), "the package of another directory is used"
QUEUE: dict[str, object] = {"VISIBILITY_TIMEOUT_S": 3}
# An older release may not know the option.
SHARDS = {"SHARDS": count} if (count := int(os.environ.get("RSMQ_FAULTS_SHARDS", "1"))) > 1 else {}
RSMQ = {
    "CONNECTIONS": {"default": json.loads(os.environ.get("RSMQ_FAULTS_CONNECTION", "{}"))},
    "QUEUES": {
        "default": {**QUEUE, **SHARDS, "MAX_SIZE_BYTES": -1},
        "raw": QUEUE,
        "ordered": {**QUEUE, "OUTBOX": HAS_OUTBOX},
    },
    "RELIABLE": {"parcels": {"LEASE_S": 3}},
    "TASKS": {"ENQUEUE_ON_COMMIT": HAS_OUTBOX},  # type: ignore[dict-item]
    "SCHEDULES": {"tick": {"TASK": "tests.faults.project.tasks.tick", "EVERY_S": 1}},
}
