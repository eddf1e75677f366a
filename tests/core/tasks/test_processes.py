"""Records of worker processes, and commands to them."""

from dataclasses import replace

import pytest

from rsmq_django.core import Client
from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.keys import workers_key
from rsmq_django.core.tasks.processes import (
    KEEP_RECORD_S,
    ProcessRecord,
    Running,
    SlotUse,
    describe,
    give_order,
    held_in,
    read_processes,
)
from rsmq_django.core.transport.call import Call
from tests.redis_server import PrivateServer

RECORD = ProcessRecord(
    host="web-1",
    pid=42,
    version="1.0",
    age_ms=5000,
    memory_bytes=1 << 20,
    state="working",
    queues=("mail", "jobs"),
    running=(Running("a b", 900), Running("c", 10)),
    slots=(SlotUse("function", 2, 8), SlotUse("coroutine", 0, 100)),
)


@pytest.fixture
def worker(client: Client) -> str:
    client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, "w1"), lambda reply: None))
    return "w1"


def test_a_record_is_read_unchanged_and_its_age_grows(client: Client, server: PrivateServer):
    assert client.run(describe("rsmq", "w1", RECORD)) == ("", "", False)

    found = client.run(read_processes("rsmq", ["w1", "unknown"]))

    assert set(found) == {"w1"}
    ago_ms = found["w1"].told_ms_ago
    older = tuple(replace(each, run_ms=each.run_ms + ago_ms) for each in RECORD.running)
    assert found["w1"] == replace(RECORD, age_ms=5000 + ago_ms, running=older, told_ms_ago=ago_ms)
    assert 0 < server.redis.ttl("rsmq::process:w1") <= KEEP_RECORD_S


def test_a_process_without_work_and_memory_is_described_too(client: Client):
    client.run(describe("rsmq", "w1", replace(RECORD, memory_bytes=None, queues=(), running=())))

    found = client.run(read_processes("rsmq", ["w1"]))["w1"]

    assert (found.memory_bytes, found.queues, found.running) == (None, (), ())


def test_a_command_is_read_until_another_one_is_given(client: Client, worker: str):
    assert client.run(give_order("rsmq", worker, "quiet")) is True

    first, again = (client.run(describe("rsmq", worker, RECORD)) for _ in range(2))
    client.run(give_order("rsmq", worker, "stop"))

    assert first == again and first.order.startswith("quiet ")
    assert client.run(describe("rsmq", worker, RECORD)).order.startswith("stop ")


def test_a_worker_that_has_ended_accepts_no_commands(client: Client, server: PrivateServer):
    assert client.run(give_order("rsmq", "w1", "stop")) is False
    assert not server.redis.exists("rsmq::order:w1")


def test_unknown_worker_command_is_refused():
    with pytest.raises(InvalidValue, match="unknown worker command"):
        give_order("rsmq", "w1", "dance")  # type: ignore[arg-type]


def test_commands_are_read_at_the_memory_limit(client: Client, server: PrivateServer, worker: str):
    client.run(give_order("rsmq", worker, "stop"))
    client.run(describe("rsmq", worker, RECORD))  # the script is known
    server.redis.config_set("maxmemory", 1)
    try:
        assert client.run(describe("rsmq", worker, RECORD)).order.startswith("stop ")
    finally:
        server.redis.config_set("maxmemory", 0)


def test_records_of_other_programs_do_no_harm(client: Client, server: PrivateServer):
    server.redis.hset(
        "rsmq::process:w1",
        mapping={"described_ms": "soon", "pid": "-", "running": "\n  \nx y", "slots": "a b c\nfunction x -1\n7"},
    )

    found = client.run(read_processes("rsmq", ["w1"]))["w1"]

    assert (found.pid, found.host) == (0, "")
    assert found.slots == (SlotUse("function", 0, 0),)


def test_leased_messages_of_a_worker_are_returned_with_their_queues(client: Client, server: PrivateServer):
    batches = {"7 mail": "\na 1\nb 12", "8 big jobs": "\nc 1", "9 mail": "\nd 3"}
    server.redis.hset("rsmq::worker:w1", mapping=batches)

    held = client.run(held_in("rsmq", "w1"))

    assert held == {"a": "mail", "b": "mail", "c": "big jobs", "d": "mail"}
    assert client.run(held_in("rsmq", "w2")) == {}
