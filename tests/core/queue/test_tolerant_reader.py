"""Bytes of every known implementation of RSMQ, replayed: ours reads them without a crash and says what they are.

Each `Port` writes what that client leaves in Redis. `received` is what a worker of ours gets from it, and `findings`
is what the doctor says, no more and no less. Forms that several ports share are tested one by one in
test_queue_foreign.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from rsmq_django.core import Client, Queue, list_queues
from rsmq_django.core.doctor import examine
from rsmq_django.core.errors import BrokenQueue, QueueNotFound
from tests.redis_server import PrivateServer

#: Ids with a time of 2022, as the reference writes them.
ID, OTHER_ID = "g73zkl38qz" + "A" * 22, "g73zkl38qz" + "B" * 22
NOW_MS = int(time.time() * 1000) - 60_000
PLAIN: dict[Any, Any] = {
    "vt": "30",
    "delay": "0",
    "maxsize": "65536",
    "created": "1645019600",
    "modified": "1645019600",
}


def queue_of(server: redis.Redis, *, listed: bool = True, without: tuple[str, ...] = (), **fields: str) -> None:
    """Write the queue "q" with RSMQ's attributes, some of them in that client's way."""
    server.hset("rsmq:q:Q", mapping={name: value for name, value in {**PLAIN, **fields}.items() if name not in without})
    if listed:
        server.sadd("rsmq:QUEUES", "q")


def message_of(server: redis.Redis, message_id: str = ID, *, score: float = NOW_MS, body: str | None = "hello") -> None:
    """Write a message of the queue "q"."""
    server.zadd("rsmq:q", {message_id: score})
    if body is not None:
        server.hset("rsmq:q:Q", message_id, body)


@dataclass(frozen=True)
class Port:
    """One client, and how ours gets on with what it leaves."""

    name: str
    write: Callable[[redis.Redis], None]
    findings: set[str] = field(default_factory=set)
    received: list[bytes] = field(default_factory=lambda: [b"hello"])
    error: type[Exception] | None = None


def reference(server: redis.Redis) -> None:
    queue_of(server)
    message_of(server)
    server.hset("rsmq:q:Q", "totalsent", 1)


def reference_ghost(server: redis.Redis) -> None:
    """The queue was deleted between the two transactions of a send."""
    message_of(server)
    server.hset("rsmq:q:Q", "totalsent", 1)


def reference_half_created(server: redis.Redis) -> None:
    """The client died between EXEC and SADD."""
    queue_of(server, listed=False)
    message_of(server)


def reference_queue_named_queues(server: redis.Redis) -> None:
    """The list of queues is where the messages should be: only bodies and counters are written."""
    server.sadd("rsmq:QUEUES", "QUEUES")
    server.hset("rsmq:QUEUES:Q", mapping={**PLAIN, ID: "lost", "totalsent": 1})


def pyrsmq(server: redis.Redis) -> None:
    queue_of(server, vt="0.5", delay="0.0", maxsize="65565")
    message_of(server)


def pyrsmq_name(server: redis.Redis) -> None:
    queue_of(server)
    message_of(server)
    server.hset("rsmq:grüße an alle\n:Q", mapping=PLAIN)
    server.sadd("rsmq:QUEUES", "grüße an alle\n")


def pyrsmq_removed_attribute(server: redis.Redis) -> None:
    """Its deleteMessage(id="vt")."""
    queue_of(server, without=("vt",))
    message_of(server)


def pyrsmq_attributes_of_nothing(server: redis.Redis) -> None:
    """Its setQueueAttributes on a queue that does not exist."""
    server.hset("rsmq:q:Q", mapping={"vt": 5, "modified": 1645019600})


def pyrsmq_bytes(server: redis.Redis) -> None:
    """Its delete with ids as bytes removed the body and left the counters of another name."""
    queue_of(server)
    message_of(server)
    server.hset("rsmq:q:Q", mapping={f"b'{OTHER_ID}':rc": 1, f"b'{OTHER_ID}':fr": NOW_MS})


def rsmq_async(server: redis.Redis) -> None:
    queue_of(server, vt="30000", totalrecv="0", totalsent="0")
    message_of(server)


def rsmq_async_long(server: redis.Redis) -> None:
    queue_of(server, vt="86400000", totalrecv="0", totalsent="0")
    message_of(server)


def rsmq_async_microseconds(server: redis.Redis) -> None:
    queue_of(server)
    message_of(server, score=NOW_MS * 1000)
    server.hset("rsmq:q:Q", mapping={f"{ID}:rc": 1, f"{ID}:fr": NOW_MS * 1000})


def rsmq_async_short_ids(server: redis.Redis) -> None:
    """Version 8 to 15: a prefix of milliseconds, and a clock that stands still for a second."""
    queue_of(server)
    message_of(server, "l0abcdef" + "C" * 22, score=NOW_MS // 1000 * 1000)


def rsmq_async_seconds(server: redis.Redis) -> None:
    """Version 7.0.2."""
    queue_of(server)
    message_of(server, "r7abcd" + "C" * 22, score=NOW_MS // 1000)


def rsmq_async_without_colon(server: redis.Redis) -> None:
    """Before version 10: keys that no other client looks at."""
    server.hset("rsmqq:Q", mapping=PLAIN)
    server.sadd("rsmqQUEUES", "q")


def rbmq(server: redis.Redis) -> None:
    server.hset("rsmq:q:cfg", mapping={"vt": 30000})
    server.hset("rsmq:q:msg", "0" * 32, b"\x01\x00packed")


def apalis(server: redis.Redis) -> None:
    queue_of(server, totalrecv="0", totalsent="1")
    message_of(server, "g73zkl38qz" + "d" * 22)
    server.hset("rsmq:q:Q", "g73zkl38qz" + "d" * 22 + ":meta", '{"attempts": 1}')


def ebuckley(server: redis.Redis) -> None:
    """Go: times as text, ids without a time, and a delete that leaves the body."""
    queue_of(server, created="2026-03-01T12:00:00Z", modified="2026-03-01T12:00:00Z", createdby="go-rsmq")
    message_of(server, "AbCdEfGhIjKlMnOpQrStUv")
    server.hset("rsmq:q:Q", "ZbCdEfGhIjKlMnOpQrStUv", "deleted long ago")


def semihbkgr(server: redis.Redis) -> None:
    queue_of(server, modified="1645019600123")
    message_of(server)


def grafana_deleted(server: redis.Redis) -> None:
    """Its deleteQueue leaves the index."""
    message_of(server, body=None)


def grafana_created_again(server: redis.Redis) -> None:
    queue_of(server, maxsize="65535")
    message_of(server, body=None)
    message_of(server, OTHER_ID)


def php(server: redis.Redis) -> None:
    queue_of(server)
    message_of(server)
    server.hset("rsmq:q:Q", mapping={f"{ID}:rc": "1", f"{ID}:fr": str(NOW_MS)})


def jrsmq(server: redis.Redis) -> None:
    """Java: a visibility timeout overflows, and the score lies in the past."""
    queue_of(server, vt="9999999")
    message_of(server, score=NOW_MS - 1_294_967_296)


def rsmqcsharp_deleted(server: redis.Redis) -> None:
    """Its deleteQueue only takes the name off the list."""
    queue_of(server, listed=False)
    message_of(server)


def aiorsmq_name(server: redis.Redis) -> None:
    """Python's "$" lets a line break through."""
    queue_of(server)
    message_of(server)
    server.hset("rsmq:q\n:Q", mapping=PLAIN)
    server.sadd("rsmq:QUEUES", "q\n")


def rsmqx(server: redis.Redis) -> None:
    """Elixir: no times, lower-case suffix."""
    queue_of(server, without=("created", "modified"))
    message_of(server, "g73zkl38qz" + "e5" * 11)


def rsmq_rb(server: redis.Redis) -> None:
    """Ruby: seconds, short ids, fields of its own, no list, and a queue that expires."""
    queue_of(server, listed=False, msgs="1", hiddenmsgs="0")
    message_of(server, "AbCdEfGhIjKlMnOpQrStUv", score=NOW_MS // 1000)
    server.expire("rsmq:q:Q", 3600)


def dvdplm(server: redis.Redis) -> None:
    """Rust: a delete that removes the counters of the queue's name instead of the message's."""
    queue_of(server, totalrecv="1", totalsent="1")
    message_of(server)
    server.hset("rsmq:q:Q", mapping={f"{OTHER_ID}:rc": "1", f"{OTHER_ID}:fr": str(NOW_MS)})


def rsmq4s(server: redis.Redis) -> None:
    """Scala: keys of its own, which no other client looks at."""
    server.hset("{rsmq:q}:Q", mapping={**PLAIN, "totalsend": 1})
    server.zadd("{rsmq:q}", {"6f1e1c5a-7b0e-4a5e-9d5b-1f0b2c3d4e5f": NOW_MS // 1000})


def other_program(server: redis.Redis) -> None:
    """Nobody's queue: keys of the names that a queue would have."""
    queue_of(server)
    server.set("rsmq:q", "a counter of somebody")


def other_program_hash(server: redis.Redis) -> None:
    server.sadd("rsmq:QUEUES", "q")
    server.rpush("rsmq:q:Q", "a list of somebody")


NOT_THERE = {"received": [], "error": QueueNotFound}
PORTS = [
    Port("rsmq", reference),
    Port("rsmq: ghost", reference_ghost, {"ghost", "foreign-attributes"}, **NOT_THERE),
    Port("rsmq: half created", reference_half_created, {"unlisted"}),
    Port("rsmq: QUEUES", reference_queue_named_queues, {"reserved-name", "orphan-bodies"}, **NOT_THERE),
    Port("PyRSMQ", pyrsmq, {"fractional-attribute", "foreign-attributes"}),
    Port("PyRSMQ: name", pyrsmq_name, {"foreign-name"}),
    Port("PyRSMQ: no vt", pyrsmq_removed_attribute, {"half-created"}, **NOT_THERE),
    Port("PyRSMQ: of nothing", pyrsmq_attributes_of_nothing, {"half-created", "foreign-attributes"}, []),
    Port("PyRSMQ: bytes", pyrsmq_bytes, {"orphan-counters"}),
    Port("rsmq_async 18", rsmq_async, {"perhaps-milliseconds"}),
    Port("rsmq_async 18: a day", rsmq_async_long, {"milliseconds"}),
    Port("rsmq_async: break-js-comp", rsmq_async_microseconds, {"scores-in-microseconds"}, []),
    Port("rsmq_async 8", rsmq_async_short_ids, {"foreign-ids"}),
    Port("rsmq_async 7", rsmq_async_seconds, {"foreign-ids", "scores-in-seconds"}),
    Port("rsmq_async 6", rsmq_async_without_colon, {"keys-without-colon"}, **NOT_THERE),
    Port("rbmq", rbmq, {"rbmq"}, **NOT_THERE),
    Port("apalis-rsmq", apalis, {"foreign-fields"}),
    Port("ebuckley", ebuckley, {"foreign-attributes", "foreign-fields", "foreign-ids", "orphan-bodies"}),
    Port("semihbkgr", semihbkgr, {"foreign-attributes"}),
    Port("grafana: deleted", grafana_deleted, {"stray-index"}, **NOT_THERE),
    Port("grafana: created again", grafana_created_again, {"phantoms"}),
    Port("php-rsmq", php),
    Port("jrsmq", jrsmq),
    Port("rsmqCsharp", rsmqcsharp_deleted, {"unlisted"}),
    Port("aiorsmq", aiorsmq_name, {"foreign-name"}),
    Port("rsmqx", rsmqx, {"foreign-attributes"}),
    Port("rsmq-rb", rsmq_rb, {"unlisted", "scores-in-seconds", "foreign-ids", "foreign-fields", "expiring"}),
    Port("rsmq-rust", dvdplm, {"orphan-counters"}),
    Port("rsmq4s", rsmq4s, **NOT_THERE),
    Port("no RSMQ: index", other_program, {"wrong-type"}, [], BrokenQueue),
    Port("no RSMQ: hash", other_program_hash, {"wrong-type"}, [], BrokenQueue),
]
every_port = pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)


@every_port
def test_messages_of_every_client_are_received_extended_and_deleted(server: PrivateServer, client: Client, port: Port):
    port.write(server.redis)
    queue = Queue("q", client)

    if port.error is not None:
        with pytest.raises(port.error):
            queue.receive_many(10)
        return
    messages = queue.receive_many(10)

    assert [message.body for message in messages] == port.received
    assert all(queue.change_visibility(message, 60) for message in messages)
    assert all(queue.delete(message) for message in messages)


@every_port
def test_queues_of_every_client_are_listed_and_described(server: PrivateServer, client: Client, port: Port):
    port.write(server.redis)

    names = list_queues(client)

    if port.error is None:
        assert Queue("q", client).attributes().messages >= len(port.received)
    else:
        with pytest.raises(port.error):
            Queue("q", client).attributes()
    assert names == sorted(name.decode() for name in server.redis.smembers("rsmq:QUEUES"))


@every_port
def test_doctor_reports_the_leftovers_of_every_client_and_nothing_else(
    server: PrivateServer, client: Client, port: Port
):
    port.write(server.redis)

    findings = examine(client)

    assert {finding.id for finding in findings if finding.subject != "server"} == port.findings


@every_port
def test_doctor_only_reads(server: PrivateServer, client: Client, port: Port):
    port.write(server.redis)
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    examine(client, deep=True)

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


# -- What must not stop the others ---------------------------------------------------------------------------------


@pytest.mark.parametrize("total", ["-", "", "1.5", "9223372036854775807"])
def test_counter_that_cannot_be_raised_starts_again_and_stops_nothing(server: PrivateServer, queue: Queue, total: str):
    server.redis.hset("rsmq:jobs:Q", mapping={"totalsent": total, "totalrecv": total})

    queue.send_many([b"a", b"b"])
    received = queue.receive_many(2)
    popped = queue.pop()

    assert ([message.body for message in received], popped) == ([b"a", b"b"], None)
    assert (queue.attributes().total_sent, queue.attributes().total_received) == (2, 2)


@pytest.mark.parametrize("delay", ["nan", "-5", "inf", "soon", ""])
def test_invalid_delay_does_not_delay(queue: Queue, server: PrivateServer, delay: str):
    server.redis.hset("rsmq:jobs:Q", "delay", delay)

    queue.send(b"x")

    assert queue.receive() is not None


@pytest.mark.parametrize("receive_count", ["many", "", "nan", "-3", "1e30"])
def test_invalid_receive_count_does_not_stop_a_delivery(server: PrivateServer, queue: Queue, receive_count: str):
    message_id = queue.send(b"x")
    server.redis.hset("rsmq:jobs:Q", f"{message_id}:rc", receive_count)

    message = queue.receive()

    assert message is not None and message.body == b"x"
    assert queue.delete(message) is True


def test_line_breaks_of_another_client_stay_out_of_our_errors(server: PrivateServer, queue: Queue):
    server.redis.hset("rsmq:jobs:Q", "vt", "x\r\n+OK\r\n" + "y" * 100)

    with pytest.raises(BrokenQueue) as refusal:
        queue.receive()

    assert "\r" not in str(refusal.value) and len(str(refusal.value)) < 200
    assert queue.attributes().messages == 0
