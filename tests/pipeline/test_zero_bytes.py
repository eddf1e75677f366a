"""Zero bytes in requests, which PostgreSQL refuses: the history answers as for names that do not exist."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import PostgresCluster
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.deadline(120)

ROOT = Path(__file__).parents[2]
LISTS = ("taskhour", "failuregroup", "sloburn", "capacityadvice", "anomaly", "queuedepth", "pipelinerun", "lakeday")
NAMES = tuple("queue table task kind q metric step span exit_code new new_since since day__year o p".split())

PROJECT = """
import json, sys
import django
from django.conf import settings
from tests import settings as of_tests

database, asked = json.loads(sys.argv[1]), json.loads(sys.argv[2])
settings.configure(
    **{name: getattr(of_tests, name) for name in dir(of_tests) if name.isupper() and name != "DATABASES"},
    DATABASES={"default": database},
)
django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from rsmq_django.pipeline.models import FailureGroup

call_command("migrate", verbosity=0)
now = timezone.now()
FailureGroup.objects.create(
    day=now.date(), task="t", fingerprint="f" * 32, error_type="E", n=1, retried=1, dead=0, first_at=now, last_at=now,
    queues=["mail"], workers=1,
)
browser = Client(raise_request_exception=False)
browser.force_login(User.objects.create_superuser("root"))
found = {url: browser.get(url).status_code for url in asked}
failures = "/admin/rsmq_pipeline/failuregroup/"
for mute in ({"mute": "yes"}, {}):
    found[f"POST {mute}"] = browser.post(failures, {"fingerprint": chr(0), **mute}).status_code
texts = [browser.get(failures + query).content.decode() for query in ("", "?queue=%00")]
print(json.dumps([found, ["No failures in this period." in text for text in texts]]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    cluster = PostgresCluster()
    yield cluster
    cluster.stop()


def addresses() -> Iterator[str]:
    for model in LISTS:
        page = f"/admin/rsmq_pipeline/{model}/"
        yield from (f"{page}?{name}=%00" for name in NAMES)
        yield from (f"{page}{key}/{view}/" for key in ("%00", "1") for view in ("change", "history"))
    for form in ("csv", "json"):
        yield from (f"/admin/rsmq_pipeline/taskhour/?{name}=%00&format={form}" for name in NAMES)


def test_a_zero_byte_in_a_request_is_that_of_an_unknown_name(cluster: PostgresCluster, server: PrivateServer):
    database: dict[str, Any] = cluster.make_database("zero")

    words = [sys.executable, "-c", PROJECT, json.dumps(database), json.dumps([*addresses()])]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)

    assert ran.returncode == 0, ran.stderr
    found, has_none = json.loads(ran.stdout)
    assert {url: status for url, status in found.items() if status not in (200, 302)} == {}
    assert has_none == [False, True]
