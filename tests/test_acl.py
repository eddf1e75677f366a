"""The rules of docs/how-to/acl.md: the page, the command that prints them, and the errors where a right is missing."""

from __future__ import annotations

import json

import pytest

from rsmq_django.cli.app import main
from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.acl import READING, ROLES, all_scripts, commands_of, scripts_of
from rsmq_django.core.errors import PermissionDenied
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.call import load_script
from tests.acl_users import TOPICS, rules_for, user_of, version_of
from tests.redis_server import PrivateServer
from tools.acl_page import PAGE, page


def test_page_has_the_generated_rules():
    assert PAGE.read_text("utf-8") == page(), "run python -m tools.acl_page"


def test_every_script_belongs_to_a_role():
    assert {name for role in ROLES for name in scripts_of(role)} == {*all_scripts()}
    assert all(load_script(name).source for name in all_scripts())


def test_every_pattern_of_a_role_names_a_script():
    for role, about in ROLES.items():
        for pattern in about.scripts:
            assert any(name.startswith(pattern.rstrip("*")) for name in scripts_of(role)), (role, pattern)


def test_viewer_has_no_command_that_writes_and_no_role_has_all_commands(server: PrivateServer):
    for role in ROLES:
        assert not {"@all", "flushdb", "flushall", "keys", "acl", "config|set"} & {*commands_of(role)}
    connecting = {"client|setinfo", "client|setname", "cluster|slots", "eval", "evalsha", "ping", "role", "script|load"}
    assert {*commands_of("viewer")} <= READING | connecting | {"select"}
    for command in READING:
        name, _, subcommand = command.partition("|")
        is_listed = subcommand and version_of(server) >= (7, 0)
        flags = server.redis.execute_command("COMMAND", "INFO", command if is_listed else name)
        (about,) = flags.values() if isinstance(flags, dict) else flags
        assert "write" not in (about["flags"] if isinstance(about, dict) else [word.decode() for word in about[2]])


@pytest.mark.parametrize("role", ROLES)
def test_command_prints_rules_that_the_server_accepts(
    role: str, server: PrivateServer, capsys: pytest.CaptureFixture[str]
):
    words = ["--ns", "{shop}*", "acl", role, "--user", "ann", "-q", "mail", "-q", "jobs", "-t", "orders"]
    if (version := version_of(server)) < (7, 2):
        words += ["--server-version", f"{version[0]}.{version[1]}"]

    assert main(words) == 0
    printed = capsys.readouterr().out.split()
    assert main([*words, "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)

    assert printed == ["ACL", "SETUSER", "ann", *as_json["rules"]]
    try:
        assert server.redis.execute_command(*printed) == b"OK"
        (user,) = [line for line in server.redis.acl_list() if line.startswith("user ann ")]
    finally:
        server.redis.execute_command("ACL", "DELUSER", "ann")
    assert "~{shop}\\*:mail" in user and "~orders:*" in user and " on " in user


def test_rules_for_old_servers_lack_the_commands_that_these_refuse(capsys: pytest.CaptureFixture[str]):
    for version, missing in (
        ("7.2", set()),
        ("7.0", {"+waitaof", "+client|setinfo"}),
        ("6.2", {"+waitaof", "+function|load"}),
    ):
        assert main(["acl", "operator"]) == 0
        whole = capsys.readouterr().out.split()
        assert main(["acl", "operator", "--server-version", version]) == 0
        assert {*whole} - {*capsys.readouterr().out.split()} == missing


def test_command_needs_a_role_that_exists(capsys: pytest.CaptureFixture[str]):
    assert main(["acl", "boss"]) == 2
    assert "'sender'" in capsys.readouterr().err


def test_rules_again_keep_the_password_and_take_old_rights(server: PrivateServer):
    words = rules_for(server, "sender")
    try:
        server.redis.execute_command("ACL", "SETUSER", "ann", "reset", ">secret", "+@all", "~*", "&*")
        server.redis.execute_command("ACL", "SETUSER", "ann", *words)
        connection = Connection(server.url.replace("unix://", "unix://ann:secret@"), timeout_s=15)

        Queue("jobs", Client(connection)).create()
        with pytest.raises(PermissionDenied):
            Queue("jobs", Client(connection)).receive()
        connection.close()
    finally:
        server.redis.execute_command("ACL", "DELUSER", "ann")


def test_user_for_one_queue_reaches_no_other(server: PrivateServer, queue: Queue):
    words = rules_for(server, "worker", queues=["mail"])
    try:
        server.redis.execute_command("ACL", "SETUSER", "ann", "reset", ">secret", *words)
        client = Client(Connection(server.url.replace("unix://", "unix://ann:secret@"), timeout_s=15))
        for name in ("mail", "mail-dead", "mail-p1"):
            Queue(name, client).create()
            Queue(name, client).send(b"x")

        with pytest.raises(PermissionDenied, match="jobs"):
            Queue("jobs", client).send(b"x")
        with pytest.raises(PermissionDenied):
            Queue("jobs", client).receive()
        client.connection.close()
    finally:
        server.redis.execute_command("ACL", "DELUSER", "ann")


@pytest.mark.parametrize("missing", ["zadd", "evalsha", "hmget"])
def test_missing_command_is_named_with_the_page(missing: str, server: PrivateServer, queue: Queue):
    with user_of(server, "sender", without=missing) as url:
        ours = Queue("jobs", Client(Connection(url, timeout_s=15)))
        with pytest.raises(PermissionDenied, match=missing) as error:
            ours.send(b"x")
        ours.client.connection.close()

    assert "docs/how-to/acl.md" in str(error.value) and "'jobs'" in str(error.value)


def test_missing_key_is_named_with_the_page(server: PrivateServer):
    with user_of(
        server, "sender", without="hello", topics=TOPICS
    ) as url:  # only the topic "orders" has keys of the user
        client = Client(Connection(url, timeout_s=15))
        with pytest.raises(PermissionDenied, match="payments") as error:
            Topic("payments", client).publish("a")
        client.connection.close()

    assert "docs/how-to/acl.md" in str(error.value)


@pytest.mark.parametrize("is_async", [False, True])
async def test_missing_right_of_a_topic_is_told_with_the_option_that_adds_it(server: PrivateServer, is_async: bool):
    with user_of(server, "sender", without="hello") as url:
        topic = Topic("orders", Client(Connection(url, timeout_s=15)))
        with pytest.raises(PermissionDenied, match="`rsmqctl acl ROLE --topic orders` prints the rules"):
            await topic.apublish("a") if is_async else topic.publish("a")
        await topic.client.connection.aclose()
        topic.client.connection.close()


def test_missing_key_of_a_queue_is_told_with_the_option_that_adds_it(server: PrivateServer):
    words = rules_for(server, "sender", queues=["mail"])
    server.redis.execute_command("ACL", "SETUSER", "ann", "reset", ">secret", *words)
    try:
        client = Client(Connection(server.url.replace("unix://", "unix://ann:secret@"), timeout_s=15))
        with pytest.raises(PermissionDenied, match="`rsmqctl acl ROLE --queue jobs` prints the rules"):
            Queue("jobs", client).send(b"x")
        client.connection.close()
    finally:
        server.redis.execute_command("ACL", "DELUSER", "ann")
