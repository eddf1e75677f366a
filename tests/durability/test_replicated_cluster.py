"""A cluster whose primaries have a replica each: the node of the URL may be any of them, and have none of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.conf.settings import get_settings
from rsmq_django.core.doctor import examine
from rsmq_django.live.durability import shortfalls
from rsmq_django.queues import get_client
from tests.cluster import Node, ReplicatedCluster

pytestmark = pytest.mark.slow

SHARDS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    cluster = ReplicatedCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def use(settings: Any, node: Node) -> None:
    """Have the project name this node."""
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": node.url, "NAMESPACE": "{rsmq}", "TIMEOUT_S": 15, "DURABILITY": {"REPLICAS": 1}}
        },
        "QUEUES": {"default": {"SHARDS": SHARDS}},
    }


def test_doctor_examines_the_primary_of_each_shard_whatever_node_the_url_names(
    cluster: ReplicatedCluster, settings: Any
):
    (replica,) = cluster.replicas_of(cluster.owner_of("{rsmq}"))
    use(settings, replica)

    for alias in get_settings().connections:
        findings = examine(get_client(alias))
        assert "replica" not in {finding.id for finding in findings}


def test_replicas_are_counted_at_the_primary_of_each_shard_whatever_node_the_url_names(
    cluster: ReplicatedCluster, settings: Any
):
    (replica,) = cluster.replicas_of(cluster.owner_of("{rsmq}"))
    use(settings, replica)

    assert [shortfalls(get_settings(), alias) for alias in get_settings().connections] == [[]] * SHARDS
