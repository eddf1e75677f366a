"""Django settings of the test run.

Importing this module starts nothing: it only knows the address at which `tests/redis_server.py` puts the private
server of this process, so that mypy and `manage.py` can load it too. A process that a test starts finds the address
of its parent's server in RSMQ_TEST_URL.
"""

import os

import django

from tests import redis_server

SECRET_KEY = "only-for-tests"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rsmq_django",
    "rsmq_django.outbox",
    "rsmq_django.pipeline",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")  # the backport of django.tasks

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
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
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # an admin user in 1 ms instead of 1 s

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

REDIS_URL = os.environ.get("RSMQ_TEST_URL") or redis_server.URL
# pytest's handlers take all lines. Without this, no test would run a task as production does, where nobody takes these.
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"django.tasks": {"level": "WARNING"}}}
# Patient, because a busy machine can stand still for more than the second that a web request should wait.
RSMQ = {"CONNECTIONS": {"default": {"URL": REDIS_URL, "TIMEOUT_S": 15}}}
TASKS = {"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}}
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}}
