"""The doctor's examination: findings about a server and its queues, missing permissions, cost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.doctor import ExpectedQueue, Finding, Severity, examine
from rsmq_django.core.doctor import messages as messages_module
from rsmq_django.core.doctor import survey as survey_module
from rsmq_django.core.doctor.catalogue import KINDS
from rsmq_django.core.doctor.versions import VULNERABILITIES, Version, parse_version, vulnerabilities_of
from rsmq_django.core.errors import ConnectionFailed, ServerRefused
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.tasks.workflows import create
from rsmq_django.core.topic import Topic
from tests.redis_server import PrivateServer

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "how-to" / "doctor.md").read_text("utf-8")
OLD_ID = "g73zkl38qz" + "A" * 22


def found(client: Client, **options: Any) -> dict[str, Finding]:
    """Return the findings by kind, without those on the age of the server that runs the tests."""
    return {one.id: one for one in examine(client, **options) if one.id != "known-vulnerability"}


def test_nothing_is_wrong_with_a_healthy_queue(client: Client, queue: Queue):
    queue.send_many([b"a", b"b", b"c"], delay_s=60)
    queue.send(b"d")
    queue.receive()

    assert found(client, deep=True) == {}


def test_nothing_is_wrong_with_an_empty_server(client: Client):
    assert found(client) == {}


@pytest.mark.parametrize("key", ["rsmq::paused", "rsmq::workflows", "rsmq::schedule:entries"])
def test_key_of_ours_that_another_program_uses_is_named(server: PrivateServer, client: Client, key: str):
    server.redis.rpush(key, "foreign")

    finding = found(client)["wrong-type"]

    assert (finding.subject, finding.severity) == (key, Severity.ERROR)
    assert finding.what.startswith("it is a list, but should be a ")


@pytest.mark.parametrize(
    "key", ["rsmq:mail:Q", "rsmq::paused", "rsmq::workers", "rsmq::dead:mail", "rsmq::released:mail"]
)
def test_key_that_another_program_uses_hides_no_other_finding(server: PrivateServer, client: Client, key: str):
    for name in ("mail", "mail-dead"):
        Queue(name, client).create()
        Queue(name, client).send("a call, and a dead letter")
    server.redis.delete(key)
    server.redis.rpush(key, "foreign")

    findings = examine(client, settings={"mail": ExpectedQueue(dead_letter="mail-dead", is_worked_on=True)})

    assert any(one.id == "wrong-type" for one in findings)
    assert [one.subject for one in findings if one.id == "dead-letters"] == ["mail-dead"]


def test_workflow_whose_sender_is_at_work_is_left_alone(client: Client):
    call = create("rsmq", "w1", keep_ms=3_600_000, fields={}, queue_names=[])
    client.run(call)

    assert found(client) == {}


def test_worst_findings_come_first(server: PrivateServer, client: Client, queue: Queue):
    server.redis.hset("rsmq:jobs:Q", mapping={"vt": "abc", "createdby": "somebody"})
    server.redis.sadd("rsmq:QUEUES", "gone")

    severities = [one.severity for one in examine(client)]

    assert severities == sorted(severities, reverse=True)
    assert set(severities) >= {Severity.ERROR, Severity.WARNING, Severity.NOTE}


def test_every_finding_says_what_is_wrong_why_it_matters_and_what_a_repair_does(server: PrivateServer, client: Client):
    server.redis.sadd("rsmq:QUEUES", "gone")

    finding = found(client)["missing-queue"]

    assert finding == Finding(
        "missing-queue",
        Severity.WARNING,
        "gone",
        "it is on the list, but has no keys",
        "it is listed, but every call on it fails",
        "remove it from the list",
        (),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_every_kind_of_failure_has_a_next_step(kind: str):
    for text in (KINDS[kind].why, KINDS[kind].repair or "x"):
        assert text[0].islower() or text.startswith(("RSMQ", "VT_UNIT"))
        assert not text.endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_documentation_explains_every_kind(kind: str):
    (row,) = re.findall(rf"^\| `{kind}` \| (\w+) \|.*\|(.*)\|$", DOCUMENTATION, re.MULTILINE)

    assert (row[0], bool(row[1].strip())) == (KINDS[kind].severity.name.lower(), KINDS[kind].repair is not None)


def test_documentation_explains_nothing_else():
    section = DOCUMENTATION.partition("## Findings")[2].partition("## Rights")[0]

    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == set(KINDS)


def test_example_of_the_documentation_works(server: PrivateServer, queue: Queue, capsys: pytest.CaptureFixture[str]):
    server.redis.hset("rsmq:jobs:Q", "vt", "0.5")
    (example,) = re.findall(r"^```python\n(.*?)^```", DOCUMENTATION, re.MULTILINE | re.DOTALL)

    exec(example, {"REDIS_URL": server.url})  # noqa: S102 - our own documentation

    assert "WARNING jobs vt is '0.5'" in capsys.readouterr().out
    assert queue.attributes().visibility_timeout_s == 1


def test_namespace_of_another_client_is_left_out(server: PrivateServer, client: Client):
    server.redis.hset("rsmq:test:jobs:Q", "vt", "abc")
    server.redis.zadd("rsmq:test:jobs", {OLD_ID: 1})
    server.redis.hset("other:jobs:Q", "vt", "abc")

    assert found(client) == {}


@pytest.mark.parametrize("namespace", ["a*", "a[b]", "a?", "a\\b", "{rsmq}"])
def test_namespace_with_pattern_characters_is_matched_literally(server: PrivateServer, namespace: str):
    client = Client(Connection(server.url, timeout_s=15), namespace=namespace)
    server.redis.hset(f"{namespace}:ours:Q", mapping={"vt": "30", "delay": "0", "maxsize": "-1"})
    server.redis.hset("axx:theirs:Q", mapping={"vt": "30", "delay": "0", "maxsize": "-1"})

    assert {one.subject for one in found(client).values()} == {"ours"}
    assert "unlisted" in found(client)


def test_sorted_set_of_another_program_is_not_a_queue(server: PrivateServer, client: Client):
    server.redis.zadd("rsmq:leaderboard", {"ann": 3, "6f1e1c5a-7b0e-4a5e-9d5b-1f0b2c3d4e5f": time.time() * 1000})
    server.redis.set("rsmq:counter", 5)

    assert found(client) == {}


def test_young_orphans_are_left_to_their_sender(server: PrivateServer, client: Client, queue: Queue):
    just_sent = queue.send(b"x")
    other = queue.send(b"y")
    server.redis.hdel("rsmq:jobs:Q", just_sent)
    server.redis.zrem("rsmq:jobs", other)

    assert found(client) == {}


# -- Messages --------------------------------------------------------------------------------------------------------


def test_counts_are_of_all_messages_and_examples_are_few(server: PrivateServer, client: Client, queue: Queue):
    server.redis.zadd("rsmq:jobs", {f"{number:032d}": 1e12 for number in range(50)})

    finding = found(client)["phantoms"]

    assert finding.what == "50 ids without a body among 50 messages"
    assert len(finding.examples) == 3 and all(len(example) == 32 for example in finding.examples)


def test_a_part_of_a_long_queue_is_examined_unless_the_examination_is_deep(
    server: PrivateServer, client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(messages_module, "SHALLOW", 1000)
    server.redis.zadd("rsmq:jobs", {f"{number:032d}": 1e12 for number in range(5000)})

    shallow, deep = found(client)["phantoms"], found(client, deep=True)["phantoms"]

    assert "of 5000 messages" in shallow.what and shallow.what.split()[0] != "5000"
    assert deep.what == "5000 ids without a body among 5000 messages"


@pytest.mark.slow
def test_no_reply_holds_more_than_a_few_thousand_words(
    server: PrivateServer, client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    for first in range(0, 20_000, 1000):
        ids = [f"{number:032d}" for number in range(first, first + 1000)]
        server.redis.zadd("rsmq:jobs", dict.fromkeys(ids, 1e12))
        server.redis.hset("rsmq:jobs:Q", mapping={f"x{one[1:]}": "x" * 100 for one in ids})
    sizes: list[int] = []
    exchange = client.connection.exchange

    def measured(commands: Any) -> Any:
        replies = exchange(commands)
        sizes.extend(len(reply) for reply in replies if isinstance(reply, list))
        return replies

    monkeypatch.setattr(client.connection, "exchange", measured)
    kinds = set(found(client, deep=True))

    assert kinds == {"phantoms", "orphan-bodies"}
    assert len(sizes) > 40 and max(sizes) < 10_000


def test_many_queues_are_examined_in_few_round_trips(server: PrivateServer, client: Client, round_trips: list[int]):
    for number in range(300):
        queue = Queue(f"jobs{number}", client)
        queue.create()
        queue.send(b"x")
        server.redis.hset(f"rsmq::dead:jobs{number}", OLD_ID, "{}")
    round_trips.clear()

    findings = [one for one in examine(client) if one.id != "known-vulnerability"]

    assert len(round_trips) < 60, "one or two for each queue would be hundreds"
    assert max(round_trips) <= 110, "a hundred, and scripts that the server did not know yet"
    stale = [one.subject for one in findings if one.id == "stale-side-data"]
    assert sorted(stale) == sorted(f"jobs{number}" for number in range(300))


def test_bodies_do_not_leave_the_server(
    server: PrivateServer, client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    queue.send_many([b"secret body " + b"x" * 1000] * 300)
    seen: list[bytes] = []
    exchange = client.connection.exchange

    def watched(commands: Any) -> Any:
        replies = exchange(commands)
        seen.append(repr(replies).encode())
        return replies

    monkeypatch.setattr(client.connection, "exchange", watched)
    examine(client, deep=True)

    assert seen and not any(b"secret body" in reply for reply in seen)


def test_progress_has_the_current_step(client: Client, queue: Queue):
    queue.send_many([b"x"] * 3000)
    told: list[tuple[str, int, int | None]] = []

    examine(client, deep=True, progress=lambda what, done, total: told.append((what, done, total)))

    assert ("messages of jobs", 3000, 3000) in told
    assert any(what == "fields of jobs" for what, _, _ in told)


def test_messages_sent_later_than_now_show_that_the_clock_went_back(
    server: PrivateServer, client: Client, queue: Queue
):
    message_id = queue.send(b"x")
    head = int(message_id[:10], 36) + 3600 * 1_000_000
    digits, text = "0123456789abcdefghijklmnopqrstuvwxyz", ""
    while head:
        head, digit = divmod(head, 36)
        text = digits[digit] + text
    server.redis.zadd("rsmq:jobs", {text + message_id[10:]: 1e12})
    server.redis.hset("rsmq:jobs:Q", text + message_id[10:], "from the future")

    assert found(client)["sent-in-the-future"].examples == (text + message_id[10:],)


def test_scores_beyond_the_longest_delay_are_reported(server: PrivateServer, client: Client, queue: Queue):
    far, near = queue.send_many([b"far", b"near"])
    now_ms = server.redis.time()[0] * 1000
    server.redis.zadd("rsmq:jobs", {far: now_ms + 10_000_100_000, near: now_ms + 9_999_000_000})

    assert found(client)["far-future"].what == "1 of 2 messages"


def test_calls_of_tasks_may_be_due_in_years(server: PrivateServer, client: Client, queue: Queue):
    in_a_year_ms = server.redis.time()[0] * 1000 + 31_536_000_000
    bodies = [b'{"v":1,"task":"shop.tasks.remind","id":"x"}', b'{"encrypted":"abc"}', b'{"signature":"abc"}']
    server.redis.zadd("rsmq:jobs", dict.fromkeys(queue.send_many(bodies), in_a_year_ms))
    assert "far-future" not in found(client)

    queue.send(bodies[0])
    held = queue.receive()  # hidden by a lease: no client hides a message for so long
    assert held is not None
    server.redis.zadd("rsmq:jobs", {held.id: in_a_year_ms})
    assert found(client)["far-future"].what == "1 of 4 messages"


# -- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "expected", "severity"),
    [
        ({"vt": "60"}, ExpectedQueue(), Severity.WARNING),
        ({"vt": "30000"}, ExpectedQueue(), Severity.ERROR),
        ({"delay": "5"}, ExpectedQueue(delay_s=5000), Severity.ERROR),
        ({"maxsize": "65565"}, ExpectedQueue(), Severity.WARNING),
        ({"vt": "30"}, ExpectedQueue(vt_unit="ms"), Severity.ERROR),
    ],
)
def test_attribute_that_differs_from_the_settings_is_reported(
    server: PrivateServer, client: Client, queue: Queue, stored: Any, expected: ExpectedQueue, severity: Severity
):
    server.redis.hset("rsmq:jobs:Q", mapping=stored)

    finding = found(client, settings={"jobs": expected})["differs-from-settings"]

    assert (finding.subject, finding.severity) == ("jobs", severity)


def test_queue_in_milliseconds_is_not_a_finding_if_the_settings_have_that_unit(
    server: PrivateServer, client: Client, queue: Queue
):
    server.redis.hset("rsmq:jobs:Q", mapping={"vt": "30000", "delay": "0"})

    assert found(client, settings={"jobs": ExpectedQueue(vt_unit="ms")}) == {}


def test_queue_of_the_settings_that_does_not_exist_is_a_note(client: Client):
    finding = found(client, settings={"mail": ExpectedQueue()})["not-created"]

    assert (finding.subject, finding.severity, finding.repair) == ("mail", Severity.NOTE, None)


# -- Our own side data -----------------------------------------------------------------------------------------------


def test_records_of_messages_that_another_client_deleted_are_found(server: PrivateServer, client: Client, queue: Queue):
    kept = queue.send(b"x")
    server.redis.hset("rsmq::dead:jobs", mapping={kept: "{}", OLD_ID: "{}"})
    server.redis.hset("rsmq::released:jobs", OLD_ID, 2)

    finding = found(client)["stale-side-data"]

    assert finding.what == "2 of 3 records belong to messages that no longer exist"
    assert set(finding.examples) == {OLD_ID}


@pytest.mark.parametrize(("quiet_for_h", "is_told"), [(23, False), (25, True)])
def test_workflow_with_purged_members_is_reported_after_a_day(
    server: PrivateServer, client: Client, quiet_for_h: int, is_told: bool
):
    keep_ms = 7 * 86_400_000
    server.redis.zadd("rsmq::workflows", {"w1": 1})
    fields: dict[Any, Any] = {"status": "running", "sealed": 1, "sent": 2, "keep_ms": keep_ms}
    server.redis.hset("rsmq::workflow:w1", mapping=fields)
    server.redis.pexpire("rsmq::workflow:w1", keep_ms - quiet_for_h * 3_600_000)

    told = found(client)

    assert ("quiet-workflow" in told) == is_told
    assert "stuck-workflow" not in told
    assert not is_told or "get_workflow(id).cancel()" in told["quiet-workflow"].why


def test_workflow_whose_state_another_program_uses_hides_no_other_finding(server: PrivateServer, client: Client):
    keep_ms, idle_ms = 7 * 86_400_000, 25 * 3_600_000
    server.redis.zadd("rsmq::workflows", {"w1": 1, "w2": 2})
    server.redis.set("rsmq::workflow:w1", "of some other program")
    fields: dict[Any, Any] = {"status": "running", "sealed": 1, "sent": 2, "keep_ms": keep_ms}
    server.redis.hset("rsmq::workflow:w2", mapping=fields)
    server.redis.pexpire("rsmq::workflow:w2", keep_ms - idle_ms)

    assert found(client)["quiet-workflow"].subject == "rsmq::workflow:w2"


@pytest.mark.parametrize("kind", ["dead", "released", "phantoms"])
def test_side_data_of_a_deleted_queue_is_found(server: PrivateServer, client: Client, kind: str):
    server.redis.hset(f"rsmq::{kind}:gone", "x", "y")

    assert found(client)["stale-side-data"].subject == "gone"


def test_result_records_are_not_read(server: PrivateServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    for number in range(100):
        server.redis.hset(f"rsmq::result:{number}", "status", "READY")
    seen: list[str] = []
    exchange = client.connection.exchange

    def watched(commands: Any) -> Any:
        replies = exchange(commands)
        seen.append(repr(replies))
        return replies

    monkeypatch.setattr(client.connection, "exchange", watched)

    assert found(client) == {}
    assert seen and not any("result:" in reply for reply in seen)


# -- The server ------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(server: PrivateServer) -> Iterator[Any]:
    """Set options of the server for one test."""
    before: dict[str, Any] = {}

    def set_(**options: str) -> None:
        for name, value in options.items():
            option = name.replace("_", "-")
            before[option] = server.redis.config_get(option)[option]
            server.redis.config_set(option, value)

    yield set_
    for option, value in before.items():
        server.redis.config_set(option, value)


def test_server_that_evicts_queues_is_reported(client: Client, config: Any):
    config(maxmemory_policy="allkeys-lru")
    assert found(client)["evicting-policy"].severity is Severity.WARNING

    config(maxmemory="1000mb")
    assert found(client)["evicting-policy"].severity is Severity.ERROR


def test_server_that_evicts_only_expiring_keys_is_fine(client: Client, config: Any):
    config(maxmemory_policy="volatile-lru", maxmemory="1000mb")

    assert found(client) == {}


def test_server_that_is_almost_full_is_reported(client: Client, config: Any):
    config(maxmemory="1mb")

    assert "memory-almost-full" in found(client)


def test_server_without_persistence_is_reported(client: Client, config: Any):
    config(appendonly="no")
    assert "no-persistence" in found(client)

    config(save="3600 1")
    assert found(client) == {}


def test_primary_that_refuses_writes_for_lack_of_replicas_is_an_error(server: PrivateServer, client: Client):
    server.redis.config_set("min-replicas-to-write", 2)
    try:
        with pytest.raises(ServerRefused, match="NOREPLICAS"):
            Queue("jobs", client).create()
        finding = found(client)["writes-refused"]
    finally:
        server.redis.config_set("min-replicas-to-write", 0)

    assert finding.severity == Severity.ERROR
    assert (
        finding.what == "the server refuses every write: min-replicas-to-write is 2, and 0 good replicas are connected"
    )
    assert "writes-refused" not in found(client)


def test_replica_is_reported_with_its_primary(server: PrivateServer, client: Client, queue: Queue):
    server.redis.replicaof("127.0.0.1", 1)
    try:
        finding = found(client)["replica"]
    finally:
        server.redis.replicaof("NO", "ONE")

    assert "127.0.0.1:1" in finding.what


@pytest.mark.parametrize(("ahead_s", "words"), [(-3600, "ahead of the local clock"), (3600, "behind the local clock")])
def test_clock_that_differs_from_the_servers_is_reported(
    client: Client, monkeypatch: pytest.MonkeyPatch, ahead_s: float, words: str
):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)

    assert words in found(client)["clock-differs"].what


def test_clock_that_differs_by_a_little_is_fine(client: Client, monkeypatch: pytest.MonkeyPatch):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 2)

    assert found(client) == {}


def test_server_that_cannot_be_reached_is_an_error_of_ours():
    with pytest.raises(ConnectionFailed):
        examine(Client(Connection("unix:///nonexistent/socket")))


def test_huge_key_space_is_walked_only_by_a_deep_examination(
    server: PrivateServer, client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(survey_module, "MANY_KEYS", 1)
    server.redis.srem("rsmq:QUEUES", "jobs")
    server.redis.sadd("rsmq:QUEUES", "other")

    assert set(found(client)) == {"not-scanned", "missing-queue"}
    assert set(found(client, deep=True)) == {"unlisted", "missing-queue"}


# -- Versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flavour", "version", "count"),
    [
        ("redis", (6, 2, 14), 3),
        ("redis", (6, 2, 16), 2),
        ("redis", (6, 2, 20), 0),
        ("redis", (7, 0, 15), 3),
        ("redis", (7, 2, 11), 1),
        ("redis", (7, 4, 6), 1),
        ("redis", (7, 4, 9), 0),
        ("redis", (8, 2, 1), 2),
        ("redis", (8, 6, 2), 1),
        ("redis", (8, 6, 3), 0),
        ("redis", (9, 0, 0), 0),
        ("valkey", (7, 2, 4), 4),
        ("valkey", (8, 1, 3), 2),
        ("valkey", (8, 1, 4), 1),
        ("valkey", (8, 1, 8), 0),
        ("valkey", (9, 0, 3), 1),
        ("valkey", (9, 1, 2), 0),
    ],
)
def test_vulnerabilities_of_a_version_are_those_without_a_fix_in_its_branch(flavour: str, version: Version, count: int):
    assert len(vulnerabilities_of(flavour, version)) == count


@pytest.mark.parametrize("known", VULNERABILITIES, ids=lambda known: known.id)
def test_table_of_vulnerabilities_is_in_order(known: Any):
    for versions in (known.redis, known.valkey):
        assert list(versions) == sorted(versions)
        assert len({version[:2] for version in versions}) == len(versions)


@pytest.mark.parametrize(
    ("text", "version"),
    [("7.0.15", (7, 0, 15)), ("8.10.2", (8, 10, 2)), ("9.1", (9, 1, 0)), ("7.4.0-rc1", (7, 4, 0)), ("unstable", None)],
)
def test_versions_are_read(text: str, version: Version | None):
    assert parse_version(text) == version


# -- What the server's user may not look at --------------------------------------------------------------------------

VIEWER = (
    "reset on >secret ~rsmq:* resetchannels &rsmq:* -@all +hello +auth +ping +select +client|setname"
    " +eval +evalsha +script|load +info +memory|usage +type +exists +time +pttl"
    " +get +hget +hmget +hexists +hstrlen +hlen +hscan +zscore +zmscore +zrange +zrangebyscore"
    " +zcard +zcount +smembers +sismember +llen +lrange +xrange +xlen"
)


@pytest.fixture
def client_as(server: PrivateServer, queue: Queue) -> Iterator[Any]:
    """Return a client whose user has the given rights."""

    def make(rules: str) -> Client:
        server.redis.execute_command("ACL", "SETUSER", "doctor", *rules.split())
        return Client(Connection(server.url.replace("unix://", "unix://doctor:secret@"), timeout_s=15))

    yield make
    server.redis.execute_command("ACL", "DELUSER", "doctor")


def test_data_that_a_viewer_may_not_read_is_reported_and_the_rest_is_examined(
    server: PrivateServer, client_as: Any, config: Any
):
    config(maxmemory_policy="allkeys-lru")
    server.redis.hset("rsmq:jobs:Q", mapping={"vt": "abc", OLD_ID: "orphan"})
    server.redis.sadd("rsmq:QUEUES", "gone")
    viewer = client_as(VIEWER)

    findings = examine(viewer)

    said = {one.subject for one in findings if one.id == "not-allowed"}
    assert {"queues that are not on the list", "how many keys there are"} <= said
    assert {"evicting-policy", "broken-attribute", "orphan-bodies", "missing-queue"} <= {one.id for one in findings}


def test_doctor_with_the_rights_of_the_documentation_sees_everything(server: PrivateServer, client_as: Any):
    server.redis.zadd("rsmq:stray", {OLD_ID: 1e12})
    (block,) = re.findall(r"^```\n(\+.*?)^```", DOCUMENTATION, re.MULTILINE | re.DOTALL)
    base = "reset on >secret ~rsmq:* resetchannels -@all +hello +auth +ping +select"
    doctor = client_as(f"{base} {' '.join(block.split())}")

    kinds = set(found(doctor, deep=True))

    assert kinds == {"stray-index"}


def test_user_without_any_rights_gets_notes_and_an_error_about_them(client_as: Any):
    nobody = client_as("reset on >secret -@all +hello +auth +select")

    findings = examine(nobody)

    assert {one.id for one in findings} == {"not-allowed"}
    assert [one.subject for one in findings if one.severity == Severity.ERROR] == ["server"]
    assert all("secret" not in f"{one}" for one in findings)


def test_workflows_that_a_viewer_may_not_read_are_reported(server: PrivateServer, client_as: Any):
    server.redis.zadd("rsmq::workflows", {"w1": 1})

    said = {one.subject for one in examine(client_as(f"{VIEWER} -hmget")) if one.id == "not-allowed"}

    assert "workflows" in said


def test_fields_of_no_known_kind_are_counted(client: Client, queue: Queue, server: PrivateServer):
    server.redis.hset("rsmq:jobs:Q", mapping={"one": "1", "two": "2"})

    assert found(client)["foreign-fields"].what.startswith("2 fields of an unknown kind")


@pytest.mark.parametrize("name", ["vt", "delay", "totalsent"])
def test_minus_one_is_broken_in_every_attribute_but_the_greatest_length(
    client: Client, queue: Queue, server: PrivateServer, name: str
):
    server.redis.hset("rsmq:jobs:Q", mapping={"maxsize": "-1", name: "-1"})

    assert found(client)["broken-attribute"].what == f"{name} is '-1'"


def test_dead_messages_of_reliable_queues_and_topics_are_found(server: PrivateServer, client: Client):
    for name in ("jobs", "good"):
        queue = ReliableQueue(name, client)
        queue.push("a", "b")
    queue = ReliableQueue("jobs", client)
    queue.bury(*[each.receipt for each in queue.pop_messages(2)])
    for name in ("orders.dlt", "read.dlt", "news"):
        Topic(name, client).publish("a")
    Topic("read.dlt", client).group("repairs").read()
    Topic("broken.dlt", client).publish("a")
    server.redis.set("broken.dlt:nextIndex", "of another program")

    dead = [finding for finding in examine(client) if finding.id == "dead-messages"]

    assert [(finding.subject, finding.what) for finding in dead] == [
        ("reliable queue jobs", "2 dead messages"),
        ("topic orders.dlt", "1 dead message, and no consumer group"),
    ]
