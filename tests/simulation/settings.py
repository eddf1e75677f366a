"""Settings of the simulated senders and workers."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS
from tests.simulation.ticks import EVERY_S, NAME

INSTALLED_APPS = [app for app in INSTALLED_APPS if app in ("rsmq_django", "django_tasks")]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
LEASE_S = 30
RSMQ = {
    "CONNECTIONS": {"default": {"URL": "redis://simulated", "TIMEOUT_S": 1}},
    "QUEUES": {"default": {"VISIBILITY_TIMEOUT_S": LEASE_S}},
    "SCHEDULES": {NAME: {"TASK": "tests.simulation.tasks.tick", "EVERY_S": EVERY_S}},  # type: ignore[dict-item]
    "WORKER": {"POLL_INTERVAL_S": 5},  # type: ignore[dict-item]
    "TASKS": {"ENQUEUE_ON_COMMIT": False},  # type: ignore[dict-item]
}
