"""A worker continues in a cluster in which the slot moves and a node dies: no stored message is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core.queue.browse import count
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import fixed
from tests.cluster import Cluster
from tests.support import wait_until
from tests.worker.workshop import declare, working

pytestmark = pytest.mark.long

TAG, TASKS = "{rsmq}", 20_000


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("is_named", [True, False], ids=["the node that is named dies", "another one dies"])
def test_slot_that_moves_and_node_that_dies_lose_nothing(cluster: Cluster, settings: Any, is_named: bool):
    first_owner = cluster.owner_of(TAG)
    second_owner, other = [each for each in cluster.masters() if each is not first_owner]
    url = (second_owner if is_named else other).url
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": url, "NAMESPACE": TAG, "TIMEOUT_S": 15}},
        "QUEUES": {"default": {}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    done: list[int] = []
    task = declare(max_attempts=20, backoff=fixed(0), result_ttl_s=0)(lambda number: done.append(number))
    task.enqueue_many([[number] for number in range(TASKS)])

    with working(threads=4):
        wait_until(lambda: len(done) > TASKS // 20)
        cluster.move(TAG, second_owner)
        wait_until(lambda: len(done) > TASKS // 4)
        spare = cluster.back_up(second_owner)
        second_owner.kill()
        spare.ask("FAILOVER", "TAKEOVER")
        wait_until(lambda: len(set(done)) == TASKS and is_empty())

    assert set(done) == set(range(TASKS))
    assert get_client().run(count(TAG, "default-dead")).messages == 0


def is_empty() -> bool:
    return get_queue("default").attributes().messages == 0
