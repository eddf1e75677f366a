"""Django settings of the measured project. What differs between measurements comes in BENCH_ variables."""

import importlib.util
import os

SECRET_KEY = "only-for-benchmarks"  # noqa: S105
DEBUG = False
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "rsmq_django", "benchmarks.ours"]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
ROOT_URLCONF = "benchmarks.web"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True},
}

#: "bench", or that many queues q0, q1, ...
QUEUE_COUNT = int(os.environ.get("BENCH_QUEUES", "1"))
QUEUE_NAMES = ["bench"] if QUEUE_COUNT == 1 else [f"q{number}" for number in range(QUEUE_COUNT)]
#: The number of shards of another queue, "sharded".
SHARDS = int(os.environ.get("BENCH_SHARDS", "0"))
#: In how many shards each of them is.
SHARDS_OF_EACH = int(os.environ.get("BENCH_SHARDS_OF_EACH", "1"))
NAMESPACE = os.environ.get("BENCH_NAMESPACE", "rsmq")
VISIBILITY_TIMEOUT_S = int(os.environ.get("BENCH_VISIBILITY_TIMEOUT_S", "30"))

RSMQ = {
    "CONNECTIONS": {"default": {"URL": os.environ["BENCH_URL"], "TIMEOUT_S": 10, "NAMESPACE": NAMESPACE}},
    "QUEUES": {
        name: {"DEAD_LETTER": "bench-dead", "VISIBILITY_TIMEOUT_S": VISIBILITY_TIMEOUT_S, "SHARDS": SHARDS_OF_EACH}
        for name in QUEUE_NAMES
    }
    | ({"sharded": {"SHARDS": SHARDS}} if SHARDS else {}),
    "TASKS": {"RESULT_TTL_S": int(os.environ.get("BENCH_RESULT_TTL_S", "86400"))},
    "STATISTICS": {"ENABLED": os.environ.get("BENCH_STATISTICS") != "0"},
    "EVENTS": {"RECORD": os.environ.get("BENCH_EVENTS", "recent")},
}
TASKS = {"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}}
