"""Valid names and values of a queue. Invalid ones are refused before anything is sent."""

from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import InvalidName, InvalidValue
from tests.redis_server import PrivateServer


@pytest.mark.parametrize("name", ["a", "A-z_09", "x" * 160, "-", "_", "queues", "RT", "0"])
def test_legal_names_work(client: Client, name: str):
    queue = Queue(name, client)

    queue.create()

    assert queue.pop() is None


@pytest.mark.parametrize(
    "name",
    ["", "x" * 161, "a b", "a\n", "a\r", "a:b", "é", "١", "a.b", "a/b", "{t}", "a*", "a\0", None, 7, b"mail"],
)
def test_illegal_names_are_refused(server: PrivateServer, client: Client, name: Any):
    with pytest.raises(InvalidName) as refusal:
        Queue(name, client).create()

    assert refusal.value.rsmq_name in {"invalidFormat", "missingParameter"}
    assert server.redis.keys() == []


@pytest.mark.parametrize("name", ["QUEUES", "rt"])
def test_names_that_would_break_the_namespace_are_reserved(server: PrivateServer, client: Client, name: str):
    with pytest.raises(InvalidName, match=name):
        Queue(name, client).create()

    assert server.redis.keys() == []


@pytest.mark.parametrize("namespace", ["", "rsmq:", None, 7])
def test_namespaces_with_ambiguous_keys_are_refused(server: PrivateServer, namespace: Any):
    with pytest.raises(InvalidName):
        Client(Connection(server.url, timeout_s=15), namespace=namespace)


#: What RSMQ allows, both ends included.
LEGAL = [
    {"visibility_timeout_s": 0},
    {"visibility_timeout_s": 9_999_999},
    {"delay_s": 0},
    {"delay_s": 9_999_999},
    {"max_size_bytes": 1024},
    {"max_size_bytes": 65_536},
    {"max_size_bytes": -1},
]
ILLEGAL = [
    {"visibility_timeout_s": -1},
    {"visibility_timeout_s": 10_000_000},
    {"visibility_timeout_s": 0.5},  # the format stores whole seconds; only a score can hold a fraction
    {"visibility_timeout_s": "30"},
    {"visibility_timeout_s": float("nan")},
    {"visibility_timeout_s": True},
    {"delay_s": -1},
    {"delay_s": 10_000_000},
    {"delay_s": 0.5},
    {"delay_s": "10abc"},
    {"max_size_bytes": 1023},
    {"max_size_bytes": 65_537},
    {"max_size_bytes": 0},
    {"max_size_bytes": -2},
    {"max_size_bytes": 2048.5},
    {"max_size_bytes": "2048"},
]


@pytest.mark.parametrize("attributes", LEGAL, ids=str)
def test_limits_of_the_format_are_legal(client: Client, attributes: dict[str, int]):
    created, changed = Queue("created", client), Queue("changed", client)

    created.create(**attributes)
    changed.create()
    changed.set_attributes(**attributes)

    [(name, value)] = attributes.items()
    assert getattr(created.attributes(), name) == getattr(changed.attributes(), name) == value


@pytest.mark.parametrize("attributes", ILLEGAL, ids=str)
def test_attributes_outside_the_limits_are_refused_at_creation(
    server: PrivateServer, client: Client, attributes: dict[str, Any]
):
    with pytest.raises(InvalidValue) as refusal:
        Queue("mail", client).create(**attributes)

    assert refusal.value.rsmq_name == "invalidValue"
    assert server.redis.keys() == []


@pytest.mark.parametrize("attributes", ILLEGAL, ids=str)
def test_attributes_outside_the_limits_are_refused_when_changed(
    server: PrivateServer, queue: Queue, attributes: dict[str, Any]
):
    before = server.redis.hgetall("rsmq:jobs:Q")

    with pytest.raises(InvalidValue):
        queue.set_attributes(**attributes)

    assert server.redis.hgetall("rsmq:jobs:Q") == before


@pytest.mark.parametrize("attribute", ["visibility_timeout_s", "delay_s"])
def test_refused_value_is_named_with_its_limits(client: Client, attribute: str):
    with pytest.raises(InvalidValue, match=r"(?s)10000000.*9999999|9999999.*10000000"):
        Queue("mail", client).create(**{attribute: 10_000_000})
