"""DURABILITY of connections and queues: what it means, and which mistakes are named."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from rsmq_django.checks import check_durability
from rsmq_django.conf.settings import read_settings
from rsmq_django.core import Durability
from rsmq_django.core.acl import rules
from tests.durability.conftest import Use
from tests.replicated_server import ReplicatedServer

PLACE = "RSMQ['CONNECTIONS']['default']['DURABILITY']"


def given(durability: Any = None, *, timeout_s: float = 1.0, **queues: Any) -> dict[str, Any]:
    connection = {"URL": "redis://localhost", "TIMEOUT_S": timeout_s, "DURABILITY": durability}
    return {"CONNECTIONS": {"default": connection}, "QUEUES": queues or {"mail": {}}}


def problems(value: object) -> list[str]:
    return [f"{each.message}. {each.hint}" for each in read_settings(value)[1]]


def test_nothing_is_waited_for_by_default():
    settings, _ = read_settings({"CONNECTIONS": {"default": {"URL": "redis://localhost"}}})

    assert settings.connections["default"].durability is None
    assert settings.queues["default"].durability is None


def test_queue_has_the_durability_of_its_connection_unless_it_has_its_own():
    settings, found = read_settings(
        given(
            {"REPLICAS": 1},
            mail={},
            fast={"DURABILITY": None},
            slow={"DURABILITY": {"REPLICAS": 2, "FSYNC": "replicas", "TIMEOUT_S": 0.8, "ACKNOWLEDGE": True}},
        )
    )

    assert found == []
    mail, slow = settings.queues["mail"].durability, settings.queues["slow"].durability
    assert mail is not None and mail.durability == Durability(1, None, 0.5) and not mail.acknowledge
    assert settings.queues["fast"].durability is None
    assert slow is not None and slow.durability == Durability(2, "replicas", 0.8) and slow.acknowledge


@pytest.mark.parametrize(
    ("durability", "problem"),
    [
        ({"REPLICA": 1}, f"{PLACE} has an unknown option 'REPLICA'. Did you mean 'REPLICAS'?"),
        ({"REPLICAS": 0}, f"{PLACE}['REPLICAS'] is 0. It must be whole replicas from 1 to 100, or None."),
        ({"REPLICAS": True}, f"{PLACE}['REPLICAS'] is True. It must be whole replicas from 1 to 100, or None."),
        ({"REPLICAS": 1, "FSYNC": "yes"}, f"{PLACE}['FSYNC'] is 'yes'. It must be 'local', 'replicas' or None."),
        ({"REPLICAS": 1, "TIMEOUT_S": 0}, f"{PLACE}['TIMEOUT_S'] is 0. It must be seconds from 0.01 to 30."),
        ({"REPLICAS": 1, "ACKNOWLEDGE": 1}, f"{PLACE}['ACKNOWLEDGE'] is 1. It must be True or False."),
        ({}, f"{PLACE} waits for nothing. Set REPLICAS to at least 1, or FSYNC to 'local'."),
        ({"FSYNC": "replicas"}, f"{PLACE} waits for nothing. Set REPLICAS to at least 1, or FSYNC to 'local'."),
        (1, f"{PLACE} is 1. It must be a dictionary."),
        (
            {"REPLICAS": 1, "TIMEOUT_S": 0.9},
            f"{PLACE}['TIMEOUT_S'] is 0.9, and the TIMEOUT_S of the connection is 1. It may be 0.8 at most; or raise "
            "the TIMEOUT_S of the connection.",
        ),
    ],
    ids=repr,
)
def test_wrong_durability_is_named(durability: Any, problem: str):
    assert problems(given(durability)) == [problem]


def test_wrong_durability_of_a_queue_is_named_with_its_place():
    place = "RSMQ['QUEUES']['mail']['DURABILITY']"
    assert problems(given(mail={"DURABILITY": {"REPLICAS": 0}})) == [
        f"{place}['REPLICAS'] is 0. It must be whole replicas from 1 to 100, or None."
    ]
    assert problems(given(timeout_s=0.2, mail={"DURABILITY": {"REPLICAS": 1}})) == [
        f"{place}['TIMEOUT_S'] is 0.5, and the TIMEOUT_S of the connection is 0.2. It may be 0.16 at most; or raise "
        "the TIMEOUT_S of the connection."
    ]


# -- Questions to the server ------------------------------------------------------------------------------------------


def found(settings: Any) -> list[str]:
    return [f"{each.id} {each.msg}" for each in check_durability(None, deploy=True)]


@pytest.mark.needs_redis(7, 2)
def test_server_that_gives_what_is_asked_for_passes(use: Use, replica: ReplicatedServer, settings: Any):
    use({"REPLICAS": 1, "FSYNC": "local"})
    assert found(settings) == []
    use({"REPLICAS": 1, "FSYNC": "replicas"})
    assert found(settings) == []
    use()
    assert found(settings) == []


@pytest.mark.needs_redis(7, 2)
@pytest.mark.usefixtures("replica")
def test_check_of_a_deployment_reports_missing_replicas_and_append_only_files(
    use: Use, primary: ReplicatedServer, settings: Any
):
    use(queues={"mail": {"DURABILITY": {"REPLICAS": 2, "FSYNC": "local"}}, "other": {}})
    (line,) = found(settings)
    assert line.startswith("rsmq.W008 The durability of the connection 'default' asks for 2 replicas, and its server ")
    primary.redis.config_set("appendonly", "no")
    try:
        lines = found(settings)
    finally:
        primary.redis.config_set("appendonly", "yes")
    assert len(lines) == 2
    assert "asks for FSYNC 'local', and its server has no append-only file" in lines[1]


def test_check_of_a_deployment_says_that_sends_are_refused_when_the_server_demands_replicas(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, settings: Any
):
    use({"REPLICAS": 2})
    primary.redis.config_set("min-replicas-to-write", 2)
    try:
        lines = found(settings)
    finally:
        primary.redis.config_set("min-replicas-to-write", 0)

    assert lines == [
        "rsmq.W008 The durability of the connection 'default' asks for 2 replicas, and its server has 1: the server "
        "refuses every write: min-replicas-to-write is 2, and 1 good replica is connected."
    ]


def test_server_that_cannot_be_asked_is_reported(use: Use, settings: Any):
    use({"REPLICAS": 1}, url="unix:///nowhere/at/all")
    (line,) = found(settings)
    assert line.startswith("rsmq.W008 The server of the connection 'default' could not be asked about its replicas")


def test_only_the_check_of_a_deployment_asks_the_server(use: Use, settings: Any):
    use({"REPLICAS": 1}, url="unix:///nowhere/at/all")
    call_command("check", tags=["rsmq"], stdout=(out := StringIO()), stderr=StringIO())
    assert "could not be asked" not in out.getvalue()

    call_command("check", tags=["rsmq"], deploy=True, stdout=StringIO(), stderr=(err := StringIO()))
    assert "could not be asked" in err.getvalue()


@pytest.mark.needs_redis(7, 2)
@pytest.mark.usefixtures("replica")
@pytest.mark.parametrize("role", ["sender", "worker", "operator", "viewer"])
def test_check_asks_with_commands_that_each_role_has(
    role: str, use: Use, primary: ReplicatedServer, namespace: str, settings: Any
):
    words = [word for group in rules(role, namespace=namespace) for word in group]
    primary.redis.execute_command("ACL", "SETUSER", role, "reset", ">secret", *words)
    primary.redis.execute_command("ACL", "LOG", "RESET")
    try:
        url = primary.url.replace("redis://", f"redis://{role}:secret@")
        use({"REPLICAS": 1, "FSYNC": "local"}, url=url)
        assert found(settings) == []
        assert role == "viewer" or primary.redis.acl_log() == []
        use({"REPLICAS": 2, "FSYNC": "replicas"}, url=url)
        (line,) = found(settings)
        assert "asks for 2 replicas, and its server has 1: no send would be confirmed" in line
    finally:
        primary.redis.execute_command("ACL", "DELUSER", role)


@pytest.mark.usefixtures("replica")
@pytest.mark.parametrize("without", ["-role", "-info", "-role -info"])
def test_user_without_one_of_two_commands_is_answered_by_the_other(
    without: str, use: Use, primary: ReplicatedServer, settings: Any
):
    rights = ["~*", "+@all", *without.split()]
    primary.redis.execute_command("ACL", "SETUSER", "other", "reset", "on", ">secret", *rights)
    try:
        use({"REPLICAS": 2}, url=primary.url.replace("redis://", "redis://other:secret@"))
        (line,) = found(settings)
    finally:
        primary.redis.execute_command("ACL", "DELUSER", "other")
    is_unknown = without == "-role -info"
    assert ("and its server has 1: " in line, "could not be asked" in line) == (not is_unknown, is_unknown)


@pytest.mark.needs_redis(7, 2)
@pytest.mark.usefixtures("replica")
def test_viewer_is_told_of_a_missing_append_only_file(
    use: Use, primary: ReplicatedServer, namespace: str, settings: Any
):
    words = [word for group in rules("viewer", namespace=namespace) for word in group]
    primary.redis.execute_command("ACL", "SETUSER", "viewer", "reset", ">secret", *words)
    primary.redis.config_set("appendonly", "no")
    try:
        use({"REPLICAS": 1, "FSYNC": "local"}, url=primary.url.replace("redis://", "redis://viewer:secret@"))
        (line,) = found(settings)
    finally:
        primary.redis.config_set("appendonly", "yes")
        primary.redis.execute_command("ACL", "DELUSER", "viewer")
    assert "asks for FSYNC 'local', and its server has no append-only file" in line
