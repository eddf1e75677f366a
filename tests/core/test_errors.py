"""The tree of errors, their names in the reference implementation, and the error for each reply of a server."""

import pickle

import pytest

from rsmq_django.core import Client, Connection, Queue, errors
from rsmq_django.core.errors import (
    BrokenQueue,
    ConnectionFailed,
    InvalidMessageId,
    InvalidName,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    NoAttributeSupplied,
    OutcomeUnknown,
    PermissionDenied,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RsmqError,
    ServerRefused,
)
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer

ALL_ERRORS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]


def test_all_errors_are_one_tree():
    assert len(ALL_ERRORS) >= 13
    assert all(issubclass(error, RsmqError) for error in ALL_ERRORS)


def test_errors_have_a_docstring_with_their_meaning():
    assert all(error.__doc__ for error in ALL_ERRORS)


def test_errors_have_their_subject_for_programs(queue: Queue, client: Client, server: PrivateServer):
    queue.set_attributes(max_size_bytes=1024)

    with pytest.raises(MessageTooLong) as too_long:
        queue.send(b"x" * 1025)
    with pytest.raises(QueueNotFound) as missing:
        Queue("gone", client).send(b"x")
    with pytest.raises(QueueExists) as existing:
        queue.create()
    server.redis.set("rsmq:broken:Q", "foreign")
    with pytest.raises(BrokenQueue) as broken:
        Queue("broken", client).send(b"x")

    error = pickle.loads(pickle.dumps(too_long.value))
    assert (error.queue_name, error.size_bytes, error.limit_bytes) == ("jobs", 1025, 1024)
    assert [each.value.queue_name for each in (missing, existing, broken)] == ["gone", "jobs", "broken"]
    assert InvalidValue("of no queue").queue_name == ""


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (QueueNotFound, "queueNotFound", "Queue not found"),
        (QueueExists, "queueExists", "Queue exists"),
        (MessageTooLong, "messageTooLong", "Message too long"),
        (NoAttributeSupplied, "noAttributeSupplied", "No attribute was supplied"),
        (InvalidName, "invalidFormat", "Invalid qname format"),
        (InvalidMessageId, "invalidFormat", "Invalid id format"),
    ],
)
def test_errors_carry_name_and_text_of_the_reference(error: type[RsmqError], name: str, message: str):
    assert (error.rsmq_name, error.rsmq_message) == (name, message)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"delay_s": -1}, "delay must be between 0 and 9999999"),
        ({"visibility_timeout_s": 10_000_000}, "vt must be between 0 and 9999999"),
        ({"max_size_bytes": 3}, "maxsize must be between 1024 and 65536"),
    ],
)
def test_refused_value_carries_the_text_of_the_reference_in_its_words(
    client: Client, attributes: dict[str, int], message: str
):
    with pytest.raises(InvalidValue) as refusal:
        Queue("mail", client).create(**attributes)

    assert (refusal.value.rsmq_name, refusal.value.rsmq_message) == ("invalidValue", message)


@pytest.mark.parametrize("error", [InvalidName, InvalidValue, InvalidMessageId, MessageTooLong, NoAttributeSupplied])
def test_mistakes_in_a_value_are_value_errors_too(error: type[RsmqError]):
    assert issubclass(error, ValueError)


def test_error_of_a_send_that_is_too_long_names_thing_limit_and_next_step(queue: Queue):
    with pytest.raises(MessageTooLong) as refusal:
        queue.send(b"x" * 70_000)

    text = str(refusal.value)
    assert "70000" in text and "'jobs'" in text and "65536" in text
    assert "elsewhere" in text


def test_error_of_a_missing_queue_hints_at_the_likely_causes(client: Client):
    with pytest.raises(QueueNotFound) as refusal:
        Queue("nowhere", client).receive()

    assert "'nowhere'" in str(refusal.value)
    assert "eviction" in str(refusal.value)


def test_error_of_a_worker_that_lost_its_lease_names_the_message(queue: Queue):
    queue.send(b"x")
    first = queue.receive(visibility_timeout_s=0)
    queue.receive()
    assert first is not None

    with pytest.raises(LeaseLost, match=first.id):
        queue.delete(first)


# -- Replies of the server -----------------------------------------------------------------------------------------

#: Replies of a server that is not the primary any more. The request is repeated once, on a new socket.
DEMOTED = ("READONLY ", "MASTERDOWN ")
REPLIES = [
    ("OOM command not allowed when used memory > 'maxmemory'.", QueueFull),
    ("ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed when used memory", QueueFull),
    ("READONLY You can't write against a read only replica.", ServerRefused),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist", ServerRefused),
    ("LOADING Redis is loading the dataset in memory", ServerRefused),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ServerRefused),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ServerRefused),
    ("NOREPLICAS Not enough good replicas to write.", ServerRefused),
    ("CLUSTERDOWN The cluster is down", ServerRefused),
    ("ERR something that nobody has heard of", ServerRefused),
    ("NOPERM this user has no permissions to run the 'evalsha' command", PermissionDenied),
    ("NOPERM No permissions to access a key", PermissionDenied),
    ("NOAUTH Authentication required.", PermissionDenied),
    ("ERR ACL failure in script: User can't run this command script: f_1, on @user_script:9.", PermissionDenied),
    ("ERR The user executing the script can't run this command or subcommand script: f_1", PermissionDenied),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", BrokenQueue),
]


@pytest.mark.parametrize(("reply", "error"), REPLIES, ids=[reply for reply, _ in REPLIES])
def test_error_reply_of_a_server_becomes_the_matching_error(
    proxy: FaultProxy, queue: Queue, reply: str, error: type[RsmqError]
):
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    distant.send(b"the server knows the script")
    proxy.answer_instead(b"EVALSHA", f"-{reply}\r\n".encode(), times=2 if reply.startswith(DEMOTED) else 1)

    with pytest.raises(RsmqError) as refusal:
        distant.send(b"x")

    assert type(refusal.value) is error
    assert "jobs" in str(refusal.value) or "127.0.0.1" in str(refusal.value)
    assert queue.attributes().messages == 1


@pytest.mark.parametrize(("reply", "error"), REPLIES, ids=[reply for reply, _ in REPLIES])
async def test_async_calls_name_the_same_errors(proxy: FaultProxy, queue: Queue, reply: str, error: type[RsmqError]):
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    await distant.asend(b"the server knows the script")
    proxy.answer_instead(b"EVALSHA", f"-{reply}\r\n".encode(), times=2 if reply.startswith(DEMOTED) else 1)

    with pytest.raises(RsmqError) as refusal:
        await distant.asend(b"x")

    assert type(refusal.value) is error
    await distant.client.connection.aclose()


@pytest.mark.parametrize("reply", [reply for reply, _ in REPLIES if "can't run this command" in reply])
def test_refusal_that_does_not_name_the_command_lists_those_of_the_script(proxy: FaultProxy, queue: Queue, reply: str):
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    distant.send(b"the server knows the script")
    proxy.answer_instead(b"EVALSHA", f"-{reply}\r\n".encode())

    with pytest.raises(PermissionDenied, match="It runs .*hmget.*zadd"):
        distant.send(b"x")


@pytest.mark.parametrize(
    "reply",
    [
        "ERR Error running script (call to f_1a): @user_script:14: @user_script: 14: -NOREPLICAS Not enough.",  # 6.2
        "NOREPLICAS Not enough. script: 1a, on @user_script:14.",  # Redis 7
        "NOREPLICAS Not enough. script: on @user_script:14.",  # Valkey 9
    ],
)
def test_refusal_leaves_out_the_place_in_a_script(proxy: FaultProxy, queue: Queue, reply: str):
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    proxy.answer_instead(b"EVALSHA", f"-{reply}\r\n".encode())

    with pytest.raises(ServerRefused, match=r"cannot run the command now \(NOREPLICAS Not enough\.\); nothing"):
        distant.send(b"x")


def test_connection_survives_an_error_reply(proxy: FaultProxy, queue: Queue):
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    distant.send(b"x")
    proxy.answer_instead(b"EVALSHA", b"-ERR no\r\n")
    with pytest.raises(ServerRefused):
        distant.send(b"y")

    assert distant.attributes().messages == 1


def test_replica_refuses_to_store(server: PrivateServer, queue: Queue):
    server.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(ServerRefused, match="jobs"):
            queue.send(b"x")
    finally:
        server.redis.execute_command("REPLICAOF", "NO", "ONE")


def test_nothing_sent_and_outcome_unknown_are_different_errors():
    assert not issubclass(ConnectionFailed, OutcomeUnknown)
    assert not issubclass(OutcomeUnknown, ConnectionFailed)
