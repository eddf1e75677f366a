"""A server in cluster mode: a topic with a hash tag works, one without is refused with a remedy."""

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import InvalidName
from rsmq_django.core.topic import Topic
from tests.core.topic.conftest import bodies
from tests.interop.test_cluster import cluster_url  # noqa: F401 - a fixture

pytestmark = pytest.mark.interop


@pytest.mark.slow
def test_topic_with_a_hash_tag_works(cluster_url: str):  # noqa: F811
    topic = Topic("{orders}", Client(Connection(cluster_url, timeout_s=15)))
    group = topic.group("g", at_least_once=True, max_deliveries=1)

    topic.publish(*"abc", key="k", headers={"a": "b"})
    group.retry(group.read(1))
    batch = group.read(10)

    assert (bodies(batch), batch.dead_lettered) == ([b"b", b"c"], 1)
    assert group.ack(batch) == 2 and group.lag() == 0
    assert topic.compact() == 2 and topic.trim(keep=1) == 2
    assert group.replay(force=True).after == 3 and [name for name, _ in topic.groups()] == ["g"]
    assert bodies(Topic("{orders}.dlt", topic.client).group("g").read(10)) == [b"a"]


def test_topic_without_one_is_refused(cluster_url: str):  # noqa: F811
    topic = Topic("orders", Client(Connection(cluster_url, timeout_s=15)))

    for action in (lambda: topic.publish("a"), topic.group("g").read, topic.status):
        with pytest.raises(InvalidName, match=r"name it '\{orders\}'"):
            action()
