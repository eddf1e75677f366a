"""SHARDS in the settings: derived connections and namespaces, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.conf.settings import Settings, read_settings
from rsmq_django.core.keys import shard_namespace

URL = "redis://localhost:6379/0"


def read(connections: Any = None, **queues: Any) -> tuple[Settings, list[str]]:
    """Read settings; return them and their problems."""
    given = {"CONNECTIONS": connections or {"default": {"URL": URL}}, "QUEUES": queues}
    settings, problems = read_settings(given)
    return settings, [f"{problem.id} {problem.message}" for problem in problems]


@pytest.mark.parametrize(
    ("namespace", "third"),
    [
        ("rsmq", "rsmq-3"),
        ("{rsmq}", "{rsmq-3}"),
        ("shop:{eu}:jobs", "shop:{eu-3}:jobs"),
        ("{}", "{}-3"),  # without a text between the braces, Redis uses the whole key
        ("a}b{c", "a}b{c-3"),
    ],
)
def test_namespace_of_a_shard_has_a_hash_tag_of_its_own(namespace: str, third: str):
    assert shard_namespace(namespace, 3) == third
    assert shard_namespace(namespace, 0) == namespace


def test_connections_of_shards_have_the_options_of_the_queues_own():
    settings, problems = read({"default": {"URL": URL, "TIMEOUT_S": 3}}, mail={"SHARDS": 3}, small={"SHARDS": 2})

    assert problems == []
    assert list(settings.connections) == ["default", "default.1", "default.2"]
    assert {each.timeout_s for each in settings.connections.values()} == {3}
    assert list(settings.own_connections) == ["default"]
    assert settings.queue_on("small", "default.1") is not None and settings.queue_on("small", "default.2") is None


def test_queues_without_shards_have_no_further_connections():
    settings, _ = read(mail={})

    assert list(settings.connections) == ["default"] and settings.shards_of(settings.queue("mail")) == (
        settings.queue("mail"),
    )


def test_shards_of_a_connection_are_the_default_of_its_queues():
    sharded, plain = {"URL": URL, "SHARDS": 3}, {"URL": URL, "NAMESPACE": "plain"}
    settings, problems = read(
        {"default": sharded, "plain": plain},
        mail={},
        small={"SHARDS": 1, "DEAD_LETTER": "by-hand"},
        large={"SHARDS": 4},
        other={"CONNECTION": "plain"},
    )

    assert problems == []
    assert {name: queue.shards for name, queue in settings.queues.items()} == {
        "mail": 3,
        "small": 1,
        "large": 4,
        "other": 1,
    }
    assert {name: queue.shards for name, queue in settings.dead_letters.items()} == {
        "mail-dead": 3,
        "by-hand": 1,
        "large-dead": 4,
        "other-dead": 1,
    }
    assert list(settings.connections) == ["default", "plain", "default.1", "default.2", "default.3"]


def test_connection_whose_queues_are_all_in_one_piece_has_no_shards():
    settings, problems = read({"default": {"URL": URL, "SHARDS": 3}}, mail={"SHARDS": 1})

    assert problems == [] and list(settings.connections) == ["default"]


def test_wrong_number_of_shards_of_a_connection_is_refused():
    _, (problem,) = read({"default": {"URL": URL, "SHARDS": 101}}, mail={})

    assert problem.startswith("rsmq.E003 RSMQ['CONNECTIONS']['default']['SHARDS'] is 101")


def test_queue_whose_shards_are_those_of_its_connection_has_no_outbox():
    connections = {"default": {"URL": URL, "SHARDS": 2}}

    _, (problem,) = read(connections, mail={"OUTBOX": True}, small={"SHARDS": 1, "OUTBOX": True})

    assert problem == "rsmq.E003 RSMQ['QUEUES']['mail'] has SHARDS and OUTBOX"


@pytest.mark.parametrize("shards", [0, 101, "8", True])
def test_wrong_number_of_shards_is_refused(shards: Any):
    _, (problem,) = read(mail={"SHARDS": shards})

    assert problem.startswith("rsmq.E003 RSMQ['QUEUES']['mail']['SHARDS']")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"x": {"URL": "redis://elsewhere", "NAMESPACE": "rsmq-1"}},
            "has the namespace 'rsmq-1' of the connection 'x'",
        ),
        ({"default.1": {"URL": URL, "NAMESPACE": "y"}}, "has the alias 'default.1' of another connection"),
    ],
)
def test_alias_or_namespace_that_is_in_use_is_refused(other: Any, said: str):
    _, (problem,) = read({"default": {"URL": URL}, **other}, mail={"SHARDS": 2})

    assert problem.startswith("rsmq.E004 Shard 1 of the queues on RSMQ['CONNECTIONS']['default']") and said in problem


def test_dead_letter_queue_has_as_many_shards():
    settings, problems = read(mail={"SHARDS": 3})
    assert problems == [] and settings.queue("mail-dead").shards == 3

    _, (problem,) = read(mail={"SHARDS": 3, "DEAD_LETTER": "late"}, late={"SHARDS": 2})
    assert problem.startswith("rsmq.E007") and "'late' has 2" in problem


def test_outbox_is_refused():
    _, (problem,) = read(mail={"SHARDS": 2, "OUTBOX": True})

    assert problem == "rsmq.E003 RSMQ['QUEUES']['mail'] has SHARDS and OUTBOX"
