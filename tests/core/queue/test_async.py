"""The async methods: the same signatures and the same behaviour as the sync ones."""

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from rsmq_django.core import Client, Connection, Queue, SettleResult, alist_queues, list_queues
from rsmq_django.core.errors import LeaseLost, QueueExists, QueueNotFound
from rsmq_django.core.queue.queue import list_call
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until

TWINS = [
    "create",
    "delete_queue",
    "attributes",
    "set_attributes",
    "send",
    "send_many",
    "receive",
    "receive_many",
    "pop",
    "delete",
    "delete_many",
    "change_visibility",
]


@pytest.fixture
async def async_queue(server: PrivateServer) -> AsyncIterator[Queue]:
    client = Client(Connection(server.url, timeout_s=15))
    queue = Queue("jobs", client)
    await queue.acreate()
    yield queue
    await client.connection.aclose()


def public_methods(owner: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}


def test_every_method_that_talks_to_the_server_has_a_twin():
    methods = public_methods(Queue)

    asynchronous = {name for name in methods if inspect.iscoroutinefunction(getattr(Queue, name))}

    assert asynchronous >= {f"a{name}" for name in TWINS}
    assert methods >= {name.removeprefix("a") for name in asynchronous}


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_the_same_signature(name: str):
    assert inspect.signature(getattr(Queue, name)) == inspect.signature(getattr(Queue, f"a{name}"))


def test_other_twins_have_the_same_signature():
    assert inspect.signature(list_queues) == inspect.signature(alist_queues)
    assert inspect.signature(Client.run) == inspect.signature(Client.arun)
    assert inspect.signature(Client.run_many) == inspect.signature(Client.arun_many)


@pytest.mark.parametrize("name", TWINS)
def test_docstring_of_a_twin_points_at_the_sync_method(name: str):
    assert inspect.getdoc(getattr(Queue, f"a{name}")) == f"See {name}()."


async def test_operations_on_a_message(async_queue: Queue):
    message_id = await async_queue.asend(b"invoice 7")

    message = await async_queue.areceive(visibility_timeout_s=30)
    assert message is not None
    assert (message.id, message.body, message.receive_count) == (message_id, b"invoice 7", 1)
    assert await async_queue.areceive() is None
    assert await async_queue.achange_visibility(message, 60) is True
    assert await async_queue.adelete(message) is True
    assert await async_queue.adelete(message) is False


async def test_batches(async_queue: Queue):
    ids = await async_queue.asend_many([b"a", "é", b""])

    received = await async_queue.areceive_many(10)

    assert [message.id for message in received] == ids
    assert await async_queue.adelete_many([*received, "x" * 32]) == [SettleResult.DONE] * 3 + [SettleResult.MISSING]


async def test_pop(async_queue: Queue):
    await async_queue.asend(b"once")

    message = await async_queue.apop()

    assert message is not None and message.body == b"once"
    assert await async_queue.apop() is None


async def test_attributes(async_queue: Queue):
    changed = await async_queue.aset_attributes(visibility_timeout_s=90)

    assert changed == await async_queue.aattributes()
    assert changed == async_queue.attributes()


async def test_late_delete_and_extension_are_refused(async_queue: Queue):
    await async_queue.asend(b"x")
    first = await async_queue.areceive(visibility_timeout_s=1)
    pass_time(async_queue, seconds=2)
    second = await async_queue.areceive()
    assert first is not None and second is not None

    with pytest.raises(LeaseLost):
        await async_queue.adelete(first)
    with pytest.raises(LeaseLost):
        await async_queue.achange_visibility(first, 0)

    assert await async_queue.adelete(second) is True


async def test_errors_are_the_same(async_queue: Queue):
    with pytest.raises(QueueExists):
        await async_queue.acreate()
    await async_queue.adelete_queue()
    with pytest.raises(QueueNotFound):
        await async_queue.asend(b"x")


async def test_scripts_lost_by_the_server_are_loaded_again(server: PrivateServer, async_queue: Queue):
    await async_queue.asend(b"a")
    server.redis.script_flush()

    await async_queue.asend(b"b")

    assert (await async_queue.aattributes()).messages == 2


async def test_closing_closes_the_idle_sockets_of_the_loop(server: PrivateServer):
    client = Client(Connection(server.url, timeout_s=15))
    before = server.redis.info("clients")["connected_clients"]
    await asyncio.gather(*(client.arun(list_call("rsmq")) for _ in range(3)))
    assert server.redis.info("clients")["connected_clients"] > before

    await client.connection.aclose()

    wait_until(lambda: server.redis.info("clients")["connected_clients"] == before)
