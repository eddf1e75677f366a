"""Queues whose times are stored in milliseconds, as the settings' VT_UNIT says: tasks and workers keep their times."""

from __future__ import annotations

import pytest

from rsmq_django.queues import ensure_queue
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw


@pytest.fixture(autouse=True)
def _rust_queue(configure: Configure) -> None:
    configure(rust={"VT_UNIT": "ms", "VISIBILITY_TIMEOUT_S": 20, "DELAY_S": 3})


def test_settings_give_a_queue_and_its_dead_letters_their_unit(server: PrivateServer):
    ensure_queue("rust")
    ensure_queue("rust-dead")

    assert server.redis.hmget("rsmq:rust:Q", "vt", "delay") == [b"20000", b"3000"]
    assert server.redis.hget("rsmq:rust-dead:Q", "vt") == b"30000"


def test_task_is_delayed_by_the_milliseconds_of_its_queue(server: PrivateServer):
    @declare(queue_name="rust")
    def nothing() -> None: ...

    nothing.enqueue()

    ((message_id, score),) = server.redis.zrange("rsmq:rust", 0, -1, withscores=True)
    assert score == int(message_id[:10], 36) // 1000 + 3000


def test_worker_takes_messages_under_a_lease_in_milliseconds(server: PrivateServer):
    message_id = send_raw(b"of no task", "rust")
    server.redis.zadd("rsmq:rust", {message_id: 1e12})
    source = queue_source(new_worker("rust"))

    (delivery,) = source.exchange(1)

    assert (delivery.message.id, delivery.work_queue.lease_s) == (message_id, 20)
    assert server.redis.zscore("rsmq:rust", message_id) == delivery.message.first_received_ms + 20_000
