"""The access list in docs/how-to/topics.md is enough for everything, and gives nothing beside the topic."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import PermissionDenied
from rsmq_django.core.topic import NewMessage, Retention, Topic
from tests.core.topic.conftest import bodies
from tests.redis_server import PrivateServer

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "topics.md"


@pytest.fixture
def narrow(server: PrivateServer) -> Iterator[Client]:
    """A client whose user has the rights that the page lists."""
    (rules,) = re.findall(r"```text\nACL SETUSER orders (.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    server.redis.execute_command("ACL", "SETUSER", "orders", "reset", "on", ">secret", *rules.split())
    client = Client(Connection(server.url.replace("unix://", "unix://orders:secret@"), timeout_s=15))
    yield client
    client.connection.close()
    server.redis.execute_command("ACL", "DELUSER", "orders")


def test_narrow_user_does_everything_with_its_topic(narrow: Client, pass_time):
    topic = Topic("orders", narrow)
    group = topic.group("g", at_least_once=True, max_deliveries=1)
    topic.set_retention(Retention(max_count=100, max_age_s=60, max_bytes=10_000, wait_for_groups=True, group_ttl_s=60))

    topic.publish(NewMessage("a", key="k", headers={"a": "b"}), NewMessage("", key="k"), "c")
    group.retry(group.read(1))
    batch = group.read(10, block_ms=1000)
    assert (bodies(batch), batch.dead_lettered) == ([b"", b"c"], 1)
    assert group.ack(batch) == 2 and not group.read(block_ms=20)
    topic.compact(tombstone_ttl_s=0), topic.trim(keep=1), topic.trim()
    group.seek(1, force=True), group.replay(force=True)
    assert group.status().lag == topic.status().length == len(topic.read_range(1, 10).messages) == 1
    group.leave()
    assert group.drop() and topic.groups() == [] and topic.prune(idle_s=1) == []


def test_narrow_user_has_no_other_topic(narrow: Client):
    other = Topic("payments", narrow)

    with pytest.raises(PermissionDenied):
        other.publish("a")
    with pytest.raises(PermissionDenied):
        other.group("g").read()
