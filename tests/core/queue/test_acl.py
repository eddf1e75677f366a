"""The access lists that the documentation recommends: what each role needs works, what it must not do is refused."""

from collections.abc import Callable, Iterator

import pytest

from rsmq_django.core import Client, Connection, Queue, alist_queues, list_queues
from rsmq_django.core.errors import PermissionDenied
from tests.redis_server import PrivateServer

COMMON = "resetkeys ~rsmq:* resetchannels &rsmq:* -@all +hello +auth +ping +select +client|setname"
SENDING = (
    "+eval +evalsha +script|load +time +wait +publish +exists +get +set +zadd +zcard"
    " +hget +hmget +hexists +hset +hsetnx +hincrby +sadd +sismember"
)
WORKING = (
    "+del +unlink +expire +pexpire +zrem +zscore +zmscore +zrange +zrangebyscore +zcount"
    " +hdel +hstrlen +hlen +hscan +srem +smembers +incr +incrby +rpush +lpush +lpop +llen +lrange +blpop"
    " +xadd +xread +xrange +xtrim +xlen +subscribe +unsubscribe"
)
LOOKING = (
    "+eval +evalsha +script|load +info +memory|usage +type +exists +time +pttl"
    " +get +hget +hmget +hexists +hstrlen +hlen +hscan +zscore +zmscore +zrange +zrangebyscore"
    " +zcard +zcount +smembers +sismember +llen +lrange +xrange +xlen"
)
ROLES = {"producer": SENDING, "worker": f"{SENDING} {WORKING}", "viewer": LOOKING}

QueueAs = Callable[[str], Queue]


@pytest.fixture
def queue_as(server: PrivateServer, queue: Queue) -> Iterator[QueueAs]:
    """Return the queue "jobs" as seen by a user of the given role."""

    def make(role: str, *, name: str = "jobs") -> Queue:
        rules = f"reset on >secret {COMMON} {ROLES[role]}".split()
        server.redis.execute_command("ACL", "SETUSER", role, *rules)
        return Queue(
            name,
            Client(Connection(server.url.replace("unix://", f"unix://{role}:secret@"), timeout_s=15)),
            realtime=True,
        )

    yield make  # type: ignore[misc]
    server.redis.execute_command("ACL", "DELUSER", *ROLES)


def test_producer_creates_queues_and_sends(queue_as: QueueAs, server: PrivateServer):
    producer = queue_as("producer")

    producer.send(b"a")
    producer.send_many([b"b", b"c"], delay_s=5)
    Queue("new", producer.client).create()

    assert server.redis.zcard("rsmq:jobs") == 3


def test_producer_may_not_receive_and_the_attempt_changes_nothing(
    queue_as: QueueAs, server: PrivateServer, queue: Queue
):
    message_id = queue.send(b"x")
    before = server.redis.hgetall("rsmq:jobs:Q"), server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)
    producer = queue_as("producer")

    for attempt in (
        producer.receive,
        producer.pop,
        producer.attributes,
        producer.delete_queue,
        lambda: producer.delete(message_id),
        lambda: producer.change_visibility(message_id, 5),
        lambda: list_queues(producer.client),
    ):
        with pytest.raises(PermissionDenied):
            attempt()

    assert (server.redis.hgetall("rsmq:jobs:Q"), server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)) == before


def test_worker_does_everything_a_queue_can(queue_as: QueueAs, server: PrivateServer):
    worker = queue_as("worker")

    worker.send_many([b"a", b"b", b"c"])
    first, second = worker.receive_many(2)
    assert worker.change_visibility(first, 60) is True
    assert worker.delete_many([first, second]) == [1, 1]
    popped = worker.pop()
    assert popped is not None and popped.body == b"c"
    assert worker.set_attributes(delay_s=1).messages == 0
    assert list_queues(worker.client) == ["jobs"]
    worker.delete_queue()
    worker.create()


def test_worker_removes_phantoms(queue_as: QueueAs, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {"0" * 32: 1})

    assert queue_as("worker").receive() is None
    assert not server.redis.exists("rsmq:jobs")


def test_viewer_reads_and_changes_nothing(queue_as: QueueAs, server: PrivateServer, queue: Queue):
    message_id = queue.send(b"x")
    before = server.redis.hgetall("rsmq:jobs:Q"), server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)
    viewer = queue_as("viewer")

    assert viewer.attributes().messages == 1
    assert list_queues(viewer.client) == ["jobs"]
    for attempt in (
        viewer.receive,
        viewer.pop,
        viewer.create,
        viewer.delete_queue,
        lambda: viewer.send(b"y"),
        lambda: viewer.delete(message_id),
        lambda: viewer.change_visibility(message_id, 5),
        lambda: viewer.set_attributes(delay_s=5),
    ):
        with pytest.raises(PermissionDenied):
            attempt()

    assert (server.redis.hgetall("rsmq:jobs:Q"), server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)) == before


def test_no_role_sees_keys_outside_the_namespace(queue_as: QueueAs, server: PrivateServer):
    worker = queue_as("worker")
    elsewhere = Client(worker.client.connection, namespace="other")

    with pytest.raises(PermissionDenied):
        Queue("mail", elsewhere).create()
    with pytest.raises(PermissionDenied):
        list_queues(elsewhere)

    assert not server.redis.exists("other:mail:Q")


def test_refusal_names_queue_and_operation_and_no_password(queue_as: QueueAs):
    with pytest.raises(PermissionDenied) as refusal:
        queue_as("producer").receive()

    assert "'jobs'" in str(refusal.value) and "receive" in str(refusal.value)
    assert "secret" not in str(refusal.value)


async def test_narrow_user_works_and_is_refused_in_async_calls_too(queue_as: QueueAs):
    producer = queue_as("producer")

    await producer.asend(b"x")
    with pytest.raises(PermissionDenied):
        await producer.areceive()
    with pytest.raises(PermissionDenied):
        await alist_queues(producer.client)

    await producer.client.connection.aclose()
