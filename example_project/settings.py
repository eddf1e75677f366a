"""Settings of the example project: small enough to read in one go, and complete enough to copy from.

The interesting parts are RSMQ and TASKS at the end. Nothing here is a production setting: DEBUG is on, the web server
is Django's own, and the message server is private and starts automatically. Set RSMQ_URL to use yours instead.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from django.core.management.utils import get_random_secret_key

BASE_DIR = Path(__file__).resolve().parent.parent

# Database, server data and logs of the demo. Ignored by git; deleting it while nothing runs resets everything.
STATE_DIR = Path(os.environ.get("RSMQ_STATE_DIR") or BASE_DIR / ".rsmq")
STATE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)

DEBUG = os.environ.get("FLIGHTBOARD_DEBUG", "1") == "1"
# Only the web server signs anything, so a key that lives as long as its process does: no secret in the repository,
# and a restart logs everybody out.
SECRET_KEY = os.environ.get("FLIGHTBOARD_SECRET_KEY") or get_random_secret_key()
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rsmq_django",
    "rsmq_django.outbox",
    "rsmq_django.pipeline",
    "example_project.flightboard",
]
if importlib.util.find_spec("django.tasks") is None:  # Django 5.2: the same API comes from the backport
    INSTALLED_APPS.append("django_tasks")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "example_project.csp.strict_csp",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": STATE_DIR / "flightboard.sqlite3",
        "OPTIONS": {
            # The web server and the threads of the worker share this file. WAL lets them read while one writes;
            # IMMEDIATE takes the write lock at BEGIN, where SQLite waits for it, instead of in the middle of a
            # transaction, where it fails at once with "database is locked".
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "America/New_York"  # the clock on the wall of all three airports
USE_I18N = True
USE_TZ = True
STATIC_URL = "static/"

NAMESPACE = os.environ.get("FLIGHTBOARD_NAMESPACE", "flightboard")
RSMQ: dict[str, Any] = {
    "CONNECTIONS": {
        "default": {
            **({"URL": os.environ["RSMQ_URL"]} if os.environ.get("RSMQ_URL") else {"EMBEDDED": True}),
            "NAMESPACE": NAMESPACE,
            "TIMEOUT_S": 10,  # of a laptop that is busy with the demo; the default of 1 s is for web requests
        }
    },
    "QUEUES": {
        "default": {},
        "notices": {},
        "claims": {"OUTBOX": True},  # money: stored with the flight in one transaction, also during an outage of Redis
        "weather-raw": {"MAX_ATTEMPTS": 3},
    },
    # One line of the log for each attempt.
    "MIDDLEWARE": ["rsmq_django.tasks.middleware.LogDuration"],
    # Every attempt, for the pages that show them and for the pipeline that archives them.
    "EVENTS": {"RECORD": "all"},
}
TASKS = {"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}}

# Gate changes are a topic: a log that any number of readers follow. Topics know no namespace, so it is in the name.
FLIGHTBOARD_GATE_TOPIC = f"{NAMESPACE}-gates"

# Passengers of a late flight are reminded a while after the first notice. Five minutes at an airport; a second here,
# so that a replayed day comes to rest while you watch.
FLIGHTBOARD_REMINDER_DELAY_S = 1.0
