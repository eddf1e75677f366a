"""Scripts are loaded before many calls, and calls reach servers that do not have them any more."""

from collections.abc import Iterator

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import BrokenQueue, RsmqError, TopicBroken
from rsmq_django.core.keys import schedule_keys
from rsmq_django.core.queue.browse import depth_call
from rsmq_django.core.queue.queue import list_call
from rsmq_django.core.stats.history import read_totals
from rsmq_django.core.tasks.schedules import pause_entry
from rsmq_django.core.topic.topic import Topic
from tests.redis_server import PrivateServer

#: What a client sends when it connects, and this test itself. Redis 6.2 counts all subcommands of a command as one.
OF_A_CONNECTION = (
    "cmdstat_info",
    "cmdstat_hello",
    "cmdstat_select",
    "cmdstat_client",
    "cmdstat_client|setname",
    "cmdstat_client|setinfo",
    "cmdstat_config",
    "cmdstat_config|resetstat",
)


@pytest.fixture
def newcomer(server: PrivateServer) -> Iterator[Client]:
    """A client that knows nothing yet, of a server that knows no scripts."""
    server.redis.script_flush()
    server.redis.config_resetstat()
    client = Client(Connection(server.url, timeout_s=15))
    yield client
    client.connection.close()


def refused(server: PrivateServer) -> int:
    """Return how many calls the server has refused because it did not know their script."""
    return int(server.redis.info("errorstats").get("errorstat_NOSCRIPT", {"count": 0})["count"])


def loaded(server: PrivateServer) -> int:
    counts = server.redis.info("commandstats")
    return int((counts.get("cmdstat_script|load") or counts["cmdstat_script"])["calls"])


def test_a_server_that_was_just_started_refuses_none_of_many_calls(server: PrivateServer, newcomer: Client):
    replies = newcomer.run_many([depth_call("rsmq", f"queue-{number}") for number in range(200)])

    assert len(replies) == 200
    assert refused(server) == 0
    assert loaded(server) == 1


async def test_asynchronous_calls_have_the_same_order(server: PrivateServer, newcomer: Client):
    await newcomer.arun_many([depth_call("rsmq", f"queue-{number}") for number in range(200)])
    await newcomer.connection.aclose()

    assert refused(server) == 0


def test_counters_of_many_queues_are_read_without_a_refusal(server: PrivateServer, newcomer: Client):
    names = [f"queue-{number}" for number in range(20)]

    read_totals(newcomer, names)

    assert refused(server) == 0


def test_scripts_are_loaded_once_for_a_process(server: PrivateServer, newcomer: Client):
    for _ in range(3):
        newcomer.run_many([depth_call("rsmq", "a"), depth_call("rsmq", "b")])

    assert loaded(server) == 1


def test_scripts_survive_five_hundred_scripts_of_other_programs(server: PrivateServer, newcomer: Client, queue: Queue):
    newcomer.run_many([depth_call("rsmq", "jobs")] * 2)
    for number in range(600):
        server.redis.eval(f"return {number} -- of another program", 0)
    server.redis.config_resetstat()

    newcomer.run_many([depth_call("rsmq", "jobs")] * 2)

    assert refused(server) == 0


def test_calls_are_carried_out_once_after_the_server_has_lost_its_scripts(server: PrivateServer, queue: Queue):
    client = queue.client
    calls = [queue._send([str(number)], None) for number in range(20)]
    client.run_many(calls)
    server.redis.script_flush()
    server.redis.config_resetstat()

    results = client.run_many(calls)

    assert not any(isinstance(result, RsmqError) for result in results)
    assert loaded(server) == 1
    assert queue.attributes().total_sent == 40


def test_a_user_who_may_not_load_scripts_sends_them_with_the_call(server: PrivateServer, queue: Queue):
    server.redis.execute_command("ACL", "SETUSER", "modest", "on", ">secret", "~*", "&*", "+@all", "-script")
    server.redis.script_flush()
    modest = Client(Connection(server.url.replace("unix://", "unix://modest:secret@"), timeout_s=15))
    try:
        own = Queue("jobs", modest)
        own.send(b"alone")
        results = modest.run_many([own._send([b"x"], None), own._send([b"y"], None)])
        assert not any(isinstance(result, RsmqError) for result in results)
    finally:
        modest.connection.close()
        server.redis.execute_command("ACL", "DELUSER", "modest")

    assert [message.body for message in queue.receive_many(3)] == [b"alone", b"x", b"y"]


def test_a_plain_command_is_sent_as_such_and_loads_nothing(server: PrivateServer, queue: Queue, newcomer: Client):
    assert newcomer.run_many([list_call("rsmq"), list_call("rsmq")]) == [["jobs"], ["jobs"]]

    assert {"cmdstat_smembers"} <= server.redis.info("commandstats").keys() <= {"cmdstat_smembers", *OF_A_CONNECTION}


def test_an_error_names_the_topic_or_the_schedule_that_a_call_is_about(server: PrivateServer, queue: Queue):
    server.redis.set("rsmqt:orders:consumers:shipping", "a text")
    server.redis.set(schedule_keys("rsmq")[1], "a text")

    with pytest.raises(TopicBroken, match="topic 'orders:shipping': one of its keys has the wrong type"):
        Topic("orders", queue.client).group("shipping").leave()
    with pytest.raises(BrokenQueue, match="schedule 'nightly': one of its keys has the wrong type") as raised:
        queue.client.run(pause_entry("rsmq", "nightly"))
    assert raised.value.queue_name == ""
