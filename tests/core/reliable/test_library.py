"""The same scripts as functions of the server: replies in the module's shape, errors for any input."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import PermissionDenied, ServerRefused
from rsmq_django.core.keys import reliable_keys, reliable_queues_key
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.reliable.library import FUNCTIONS, aload_functions, library_source, load_functions
from tests.redis_server import PrivateServer

from .conftest import MakeQueue

pytestmark = pytest.mark.needs_redis(7, 0)

Fcall = Callable[..., Any]


@pytest.fixture
def fcall(client: Client, server: PrivateServer) -> Fcall:
    """Call a function on queues by their names."""
    load_functions(client)

    def call(function: str, queues: str, *arguments: object) -> Any:
        keys = [reliable_queues_key("rsmq"), *(key for name in queues.split() for key in reliable_keys("rsmq", name))]
        return server.redis.execute_command("FCALL", function, len(keys), *keys, *arguments)

    return call


def test_functions_and_methods_work_on_the_same_queue(fcall: Fcall, make: MakeQueue):
    hi, lo = make("hi"), make("lo")
    [first] = fcall("rq_push", "hi", 0, "a")
    lo.push("b", "c")

    popped = fcall("rq_pop", "hi lo", 2, "node-1")

    assert popped == [[b"hi", first, b"a"], [b"lo", popped[1][1], b"b"]]
    assert hi.messages("delivered")[0].consumer == "node-1"
    assert fcall("rq_inspect", "lo", "undelivered", 0, 5) == [[popped[1][1].replace(b"-1", b"-2"), b"c"]]
    [[message_id, body, _, elapsed_ms, deliveries]] = fcall("rq_inspect", "hi", "delivered", 0, 5)
    assert (message_id, body, deliveries) == (first, b"a", 1) and elapsed_ms >= 0
    assert fcall("rq_info", "hi") == [b"undelivered", 0, b"delivered", 1]
    assert fcall("rq_recover", "hi", 5, 0) == [[first, b"a"]]
    assert fcall("rq_ack", "hi", first.decode() + ":1") == []
    assert fcall("rq_ack", "hi", first.decode() + ":2") == [first]
    assert fcall("rq_ack", "none", "1-1") is fcall("rq_recover", "none", 1, 0) is None


def test_everything_beyond_the_module_can_be_called_too(fcall: Fcall, make: MakeQueue):
    queue = make("jobs")
    fcall("rq_configure", "jobs", 1)
    [message_id] = fcall("rq_push", "jobs", 0, "a")
    fcall("rq_pop", "jobs", 1)
    assert fcall("rq_extend", "jobs", 1000, message_id) == [message_id]
    assert fcall("rq_nack", "jobs", 0, "failed", message_id) == [message_id]
    assert queue.messages("dead")[0].body == b"a"
    assert fcall("rq_redrive", "jobs", 0, message_id) == [message_id]
    assert fcall("rq_statistics", "jobs")[:4] == [1, 0, 0, 0]
    assert fcall("rq_discard", "jobs", message_id) == []
    assert fcall("rq_delete_queue", "jobs") == 1


@pytest.mark.parametrize(
    ("function", "arguments", "complaint"),
    [
        ("rq_pop", ["many"], "count must be a whole number from 0 to 1000, not many"),
        ("rq_pop", [-1], "count"),
        ("rq_pop", [10**9], "count"),
        ("rq_pop", [], "count"),
        ("rq_push", [], "delay_ms"),
        ("rq_push", [0], "push takes 1 to 1000 bodies"),
        ("rq_push", ["body"], "delay_ms"),
        ("rq_recover", [1, -5], "elapsed_ms"),
        ("rq_recover", [1, "nan"], "elapsed_ms"),
        ("rq_inspect", ["lost", 0, 5], "the kind must be"),
        ("rq_inspect", ["dead", 0, 0], "count"),
        ("rq_nack", ["inf", "failed", "1-1"], "delay_ms"),
        ("rq_configure", [-1], "max_deliveries"),
    ],
)
def test_wrong_argument_is_named_and_changes_nothing(
    fcall: Fcall, make: MakeQueue, function: str, arguments: list, complaint: str
):
    make("jobs").push("a")

    with pytest.raises(redis.ResponseError, match=complaint):
        fcall(function, "jobs", *arguments)

    assert make("jobs").info() == ["undelivered", 1, "delivered", 0]


def test_wrong_keys_are_reported(fcall: Fcall, server: PrivateServer):
    for keys in (["rsmq::reliable"], ["rsmq::reliable", *reversed(reliable_keys("rsmq", "jobs"))], ["jobs"]):
        with pytest.raises(redis.ResponseError, match="the keys of a queue"):
            server.redis.execute_command("FCALL", "rq_push", len(keys), *keys, 0, "a")


def test_functions_drain_a_full_server_and_push_is_refused(fcall: Fcall, jobs: ReliableQueue, server: PrivateServer):
    [message_id] = jobs.push("a")
    server.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match="OOM|maxmemory"):
            fcall("rq_push", "jobs", 0, "b")
        assert len(server.redis.execute_command("FCALL", "rq_pop", 9, *jobs.keys, 5)) == 1
        assert len(server.redis.execute_command("FCALL", "rq_recover", 9, *jobs.keys, 5, 0)) == 1
        assert server.redis.execute_command("FCALL", "rq_ack", 9, *jobs.keys, message_id) == [message_id.encode()]
    finally:
        server.redis.config_set("maxmemory", 0)


async def test_library_is_loaded_again_over_an_older_one_and_survives_a_restart(client: Client, server: PrivateServer):
    assert load_functions(client) == await aload_functions(client) == [function.name for function in FUNCTIONS]
    await client.connection.aclose()

    server.restart()

    [[_, name, *_]] = server.redis.function_list(library="rsmq_reliable")
    assert name == b"rsmq_reliable"


def test_user_without_permission_to_load_functions_gets_the_permission_to_request(server: PrivateServer):
    server.redis.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">secret", "~*", "+@read", "+hello")
    url = server.url.replace("unix://", "unix://reader:secret@")
    try:
        with pytest.raises(PermissionDenied, match="load functions"):
            load_functions(Client(Connection(url, timeout_s=15)))
    finally:
        server.redis.execute_command("ACL", "DELUSER", "reader")


def test_server_that_refuses_the_library_reports_the_reason(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.core.reliable.library.library_source", lambda: "#!lua name=x\nno lua")

    with pytest.raises(ServerRefused, match="Redis 7 or Valkey"):
        load_functions(client)


def test_library_is_made_of_the_scripts_that_the_methods_run():
    source = library_source()

    assert all(f"local function {function.name}(KEYS, ARGV)" in source for function in FUNCTIONS)
    assert "--#include" not in source


def test_server_without_functions_reports_the_alternative(client: Client, monkeypatch: pytest.MonkeyPatch):
    # As Redis 6.2 answers: to a command that no server knows.
    monkeypatch.setattr("rsmq_django.core.reliable.library._load_command", lambda: ("FUNCTIONS", "LOAD"))

    with pytest.raises(ServerRefused, match="need Redis 7 or Valkey: upgrade the server; ReliableQueue works without"):
        load_functions(client)
