"""The doctor's repairs: each mends what was found, does nothing the second time, and keeps its hands off what lives.

`wait` stands in for the five seconds between the two looks: what a test does in it is what another client does then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue, list_queues
from rsmq_django.core.doctor import ExpectedQueue, Finding, Repair, Severity, calls, examine, repair
from rsmq_django.core.doctor import repairs as repairs_module
from rsmq_django.core.doctor.catalogue import KINDS
from rsmq_django.core.keys import queue_keys
from tests.core.queue.test_acl import COMMON, ROLES
from tests.redis_server import PrivateServer

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "how-to" / "doctor.md").read_text("utf-8")
ID, OTHER_ID = "g73zkl38qz" + "A" * 22, "g73zkl38qz" + "B" * 22
PLAIN: dict[Any, Any] = {"vt": "30", "delay": "0", "maxsize": "65536", "created": "1", "modified": "1"}
#: Every damage that can be mended, and what of it exists: subject and kind of finding.
Damage = Callable[[PrivateServer], None]


def no_wait(_seconds: float) -> None:
    """Nobody does anything between the two looks."""


def mended(client: Client, **options: Any) -> list[Repair]:
    """Examine and repair."""
    return repair(client, examine(client), **{"wait": no_wait, **options})


def test_only_repairable_findings_are_repaired(client: Client, queue: Queue):
    for kind in KINDS:
        assert repair(client, [Finding(kind, Severity.ERROR, "jobs", "what", "why", repair=None)], wait=no_wait) == []
    of_another_version = Finding("of-another-version", Severity.ERROR, "jobs", "what", "why", repair="mends it")

    assert repair(client, [of_another_version], wait=no_wait) == []


def kinds(client: Client) -> set[str]:
    return {one.id for one in examine(client) if one.subject != "server"}


def with_queue(server: PrivateServer, **fields: Any) -> None:
    server.redis.hset("rsmq:q:Q", mapping=PLAIN | fields)
    server.redis.sadd("rsmq:QUEUES", "q")


def unlisted(server: PrivateServer) -> None:
    with_queue(server)
    server.redis.delete("rsmq:QUEUES")


def half_created(server: PrivateServer) -> None:
    server.redis.hset("rsmq:q:Q", mapping={"vt": "5", "modified": "1"})


def ghost(server: PrivateServer) -> None:
    server.redis.zadd("rsmq:q", {ID: 1e12})
    server.redis.hset("rsmq:q:Q", mapping={ID: "lost", "totalsent": 1})


def missing(server: PrivateServer) -> None:
    server.redis.sadd("rsmq:QUEUES", "q")


def stray_index(server: PrivateServer) -> None:
    server.redis.zadd("rsmq:q", {ID: 1e12})


def reserved_name(server: PrivateServer) -> None:
    server.redis.hset("rsmq:QUEUES:Q", mapping={**PLAIN, ID: "vanished", "totalsent": 1})
    server.redis.sadd("rsmq:QUEUES", "QUEUES")


def expiring(server: PrivateServer) -> None:
    with_queue(server)
    server.redis.expire("rsmq:q:Q", 100)


def broken_attribute(server: PrivateServer) -> None:
    with_queue(server, vt="abc", maxsize="", totalsent="?")


def fractional_attribute(server: PrivateServer) -> None:
    with_queue(server, vt="0.5", delay="1.2")


def phantoms(server: PrivateServer) -> None:
    with_queue(server)
    server.redis.zadd("rsmq:q", {ID: 1e12, OTHER_ID: 9e13})
    server.redis.hset("rsmq:q:Q", mapping={f"{ID}:rc": 3, f"{ID}:fr": 1})


def orphan_bodies(server: PrivateServer) -> None:
    with_queue(server)
    server.redis.hset("rsmq:q:Q", mapping={ID: "one", f"{ID}:rc": 3, f"{ID}:fr": 7, OTHER_ID: "two"})


def orphan_counters(server: PrivateServer) -> None:
    with_queue(server)
    server.redis.hset("rsmq:q:Q", mapping={f"{ID}:rc": 3, f"b'{OTHER_ID}':fr": 7})


def stale_side_data(server: PrivateServer) -> None:
    server.redis.hset("rsmq::dead:q", ID, "{}")
    server.redis.hset("rsmq::released:q", ID, 1)


def stale_side_entries(server: PrivateServer) -> None:
    with_queue(server)
    stale_side_data(server)


def stuck_workflow(server: PrivateServer) -> None:
    keep_ms = 7 * 86_400_000
    server.redis.zadd("rsmq::workflows", {"w1": 1})
    fields: dict[Any, Any] = {"status": "running", "sealed": 0, "sent": 2, "keep_ms": keep_ms}
    server.redis.hset("rsmq::workflow:w1", mapping=fields)
    server.redis.pexpire("rsmq::workflow:w1", keep_ms - 7 * 3_600_000)


DAMAGES: list[tuple[Damage, str]] = [
    (unlisted, "unlisted"),
    (half_created, "half-created"),
    (ghost, "ghost"),
    (missing, "missing-queue"),
    (stray_index, "stray-index"),
    (reserved_name, "reserved-name"),
    (expiring, "expiring"),
    (broken_attribute, "broken-attribute"),
    (fractional_attribute, "fractional-attribute"),
    (phantoms, "phantoms"),
    (orphan_bodies, "orphan-bodies"),
    (orphan_counters, "orphan-counters"),
    (stale_side_data, "stale-side-data"),
    (stale_side_entries, "stale-side-data"),
    (stuck_workflow, "stuck-workflow"),
]
every_damage = pytest.mark.parametrize(("damage", "kind"), DAMAGES, ids=[one.__name__ for one, _ in DAMAGES])


def test_every_kind_that_promises_a_repair_has_one_and_is_tested():
    promised = {kind for kind, known in KINDS.items() if known.repair is not None}

    assert promised == set(repairs_module._REPAIRS) == {kind for _, kind in DAMAGES}


@every_damage
def test_findings_are_repaired(server: PrivateServer, client: Client, damage: Damage, kind: str):
    damage(server)
    assert kind in kinds(client)

    done = mended(client)

    assert all(one.changed and not one.failure for one in done if one.finding.id == kind)
    assert kind not in kinds(client)


@every_damage
def test_second_repair_of_the_same_findings_changes_nothing(
    server: PrivateServer, client: Client, damage: Damage, kind: str
):
    damage(server)
    findings = examine(client)
    repair(client, findings, wait=no_wait)
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    again = repair(client, findings, wait=no_wait)

    assert [one.changed for one in again] == [0] * len(again)
    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


@every_damage
def test_repair_works_on_a_full_server_or_reports_the_reason(
    server: PrivateServer, client: Client, damage: Damage, kind: str
):
    damage(server)
    findings = [one for one in examine(client) if one.id == kind]
    server.redis.config_set("maxmemory", 1)
    try:
        done = repair(client, findings, wait=no_wait)
    finally:
        server.redis.config_set("maxmemory", 0)

    assert all(one.changed or "memory limit" in one.failure for one in done)
    # What begins with a removal works, and that is what frees memory.
    adds = {"unlisted", "half-created", "ghost", "broken-attribute", "fractional-attribute"}
    assert all(one.changed for one in done) or kind in adds


# -- What each of them does ------------------------------------------------------------------------------------------


def test_messages_of_a_ghost_can_be_received_afterwards(server: PrivateServer, client: Client):
    ghost(server)

    mended(client, settings={"q": ExpectedQueue(visibility_timeout_s=77, max_size_bytes=-1)})

    queue = Queue("q", client)
    message = queue.receive()
    assert message is not None and message.body == b"lost"
    assert (queue.attributes().visibility_timeout_s, queue.attributes().max_size_bytes) == (77, -1)
    assert list_queues(client) == ["q"]


def test_completed_queue_has_all_fields_of_the_format(server: PrivateServer, client: Client):
    ghost(server)

    mended(client)

    attributes = Queue("q", client).attributes()
    assert set(PLAIN) < {name.decode() for name in server.redis.hkeys("rsmq:q:Q")}
    assert attributes.created_s == attributes.modified_s
    assert abs(server.redis.time()[0] - (attributes.created_s or 0)) < 60


def test_gaps_are_filled_and_existing_values_stay(server: PrivateServer, client: Client):
    half_created(server)

    mended(client, settings={"q": ExpectedQueue(visibility_timeout_s=60, delay_s=9, vt_unit="ms")})

    assert server.redis.hmget("rsmq:q:Q", "vt", "delay", "maxsize", "modified") == [b"5", b"9000", b"65536", b"1"]


def test_orphaned_bodies_become_messages_of_a_queue_of_their_own(server: PrivateServer, client: Client):
    orphan_bodies(server)

    mended(client)

    orphans = Queue("q-orphans", client)
    received = {message.id: message for message in orphans.receive_many(10)}
    assert {id_: message.body for id_, message in received.items()} == {ID: b"one", OTHER_ID: b"two"}
    assert (received[ID].receive_count, received[ID].first_received_ms) == (4, 7)
    assert orphans.attributes().total_sent == 2
    assert set(server.redis.hmget("rsmq:q-orphans:Q", *PLAIN)) >= {b"30", b"0", b"-1"}
    assert None not in server.redis.hmget("rsmq:q-orphans:Q", *PLAIN)
    assert server.redis.hlen("rsmq:q:Q") == len(PLAIN)
    assert list_queues(client) == ["q", "q-orphans"]


def test_orphaned_bodies_of_such_a_queue_become_its_messages(server: PrivateServer, client: Client):
    server.redis.hset("rsmq:q-orphans:Q", mapping={**PLAIN, ID: "again"})
    server.redis.sadd("rsmq:QUEUES", "q-orphans")

    mended(client)

    message = Queue("q-orphans", client).receive()
    assert message is not None and message.body == b"again"
    assert list_queues(client) == ["q-orphans"]


def test_longest_name_has_a_queue_for_its_orphans(server: PrivateServer, client: Client):
    name = "n" * 160
    server.redis.hset(f"rsmq:{name}:Q", mapping={**PLAIN, ID: "body"})
    server.redis.sadd("rsmq:QUEUES", name)

    mended(client)

    assert Queue("n" * 152 + "-orphans", client).receive() is not None


def test_messages_lost_in_a_queue_of_a_reserved_name_are_saved(server: PrivateServer, client: Client):
    reserved_name(server)

    mended(client)

    message = Queue("QUEUES-orphans", client).receive()
    assert message is not None and message.body == b"vanished"
    assert not server.redis.exists("rsmq:QUEUES:Q")
    assert list_queues(client) == ["QUEUES-orphans"]


def test_removed_phantoms_leave_a_trace_and_no_counters(server: PrivateServer, client: Client):
    phantoms(server)

    mended(client)

    assert server.redis.hget("rsmq::phantoms:q", "removed") == b"2"
    assert not server.redis.exists("rsmq:q")
    assert server.redis.hlen("rsmq:q:Q") == len(PLAIN)


def test_broken_attributes_get_the_values_of_the_settings(server: PrivateServer, client: Client):
    broken_attribute(server)

    mended(client, settings={"q": ExpectedQueue(visibility_timeout_s=45, max_size_bytes=2048)})

    assert server.redis.hmget("rsmq:q:Q", "vt", "maxsize", "totalsent") == [b"45", b"2048", b"0"]


def test_fractions_are_rounded_up(server: PrivateServer, client: Client):
    fractional_attribute(server)

    mended(client)

    assert server.redis.hmget("rsmq:q:Q", "vt", "delay") == [b"1", b"2"]


def test_records_of_living_messages_stay(server: PrivateServer, client: Client, queue: Queue):
    kept = queue.send(b"x")
    server.redis.hset("rsmq::dead:jobs", mapping={kept: "{}", ID: "{}"})
    server.redis.hset("rsmq::released:jobs", mapping={kept: 1, f"{kept}:crashes": 2, ID: 1, f"{ID}:crashes": 2})

    mended(client)

    assert server.redis.hkeys("rsmq::dead:jobs") == [kept.encode()]
    assert set(server.redis.hkeys("rsmq::released:jobs")) == {kept.encode(), f"{kept}:crashes".encode()}


def test_side_data_in_an_unknown_form_stays(server: PrivateServer, client: Client, queue: Queue):
    server.redis.hset("rsmq::released:jobs", mapping={f"{ID}:something new": 1, ID: 1})

    mended(client)

    assert server.redis.hkeys("rsmq::released:jobs") == [f"{ID}:something new".encode()]


def test_fields_of_other_clients_are_never_removed(server: PrivateServer, client: Client):
    orphan_bodies(server)
    foreign = {"createdby": "go", "msgs": "3", "note:rc": "1", f"{ID}:meta": "{}", "anything": "at all"}
    server.redis.hset("rsmq:q:Q", mapping=foreign)  # type: ignore[arg-type]

    mended(client)

    assert {name.decode() for name in server.redis.hkeys("rsmq:q:Q")} == {*PLAIN, *foreign}


# -- What a client may be writing ------------------------------------------------------------------------------------


def test_body_that_arrives_between_the_two_checks_saves_the_message(server: PrivateServer, client: Client):
    phantoms(server)

    mended(client, wait=lambda _: server.redis.hset("rsmq:q:Q", ID, "here it is"))

    message = Queue("q", client).receive()
    assert message is not None and message.body == b"here it is"


def test_phantom_whose_score_changes_between_the_two_checks_stays(server: PrivateServer, client: Client):
    phantoms(server)

    mended(client, wait=lambda _: server.redis.zadd("rsmq:q", {ID: 2e12}))

    assert server.redis.zscore("rsmq:q", ID) == 2e12
    assert server.redis.zscore("rsmq:q", OTHER_ID) is None


def test_orphan_that_gets_its_id_between_the_two_checks_stays(server: PrivateServer, client: Client):
    orphan_bodies(server)

    mended(client, wait=lambda _: server.redis.zadd("rsmq:q", {ID: 1e12}))

    assert server.redis.hmget("rsmq:q:Q", ID, f"{ID}:rc") == [b"one", b"3"]
    assert [message.body for message in Queue("q-orphans", client).receive_many(10)] == [b"two"]


def test_counter_whose_message_arrives_between_the_two_checks_stays(server: PrivateServer, client: Client):
    orphan_counters(server)

    mended(client, wait=lambda _: server.redis.hset("rsmq:q:Q", ID, "a body"))

    assert server.redis.hget("rsmq:q:Q", f"{ID}:rc") == b"3"


def test_queue_that_is_deleted_between_the_two_checks_stays_deleted(server: PrivateServer, client: Client):
    unlisted(server)

    mended(client, wait=lambda _: server.redis.delete("rsmq:q:Q"))

    assert server.redis.keys() == []


def test_queue_that_is_created_between_the_two_checks_stays_listed(server: PrivateServer, client: Client):
    missing(server)

    mended(client, wait=lambda _: server.redis.hset("rsmq:q:Q", mapping=PLAIN))

    assert list_queues(client) == ["q"]


def test_message_that_arrives_between_the_two_checks_keeps_a_queue_with_a_reserved_name(
    server: PrivateServer, client: Client
):
    reserved_name(server)

    mended(client, wait=lambda _: server.redis.hset("rsmq:QUEUES:Q", OTHER_ID, "just sent"))

    assert server.redis.hget("rsmq:QUEUES:Q", OTHER_ID) == b"just sent"
    mended(client)
    assert {message.body for message in Queue("QUEUES-orphans", client).receive_many(5)} == {b"vanished", b"just sent"}


def test_attribute_that_was_repaired_meanwhile_is_left_alone(server: PrivateServer, client: Client):
    broken_attribute(server)
    findings = examine(client)
    server.redis.hset("rsmq:q:Q", "vt", "99")

    repair(client, findings, wait=no_wait)

    assert server.redis.hget("rsmq:q:Q", "vt") == b"99"


def test_attribute_that_changes_between_reading_and_mending_is_left_alone(server: PrivateServer, client: Client):
    broken_attribute(server)

    assert client.run(calls.repair_attribute(queue_keys("rsmq", "q"), "vt", "what was read", 30)) == 0

    assert server.redis.hget("rsmq:q:Q", "vt") == b"abc"


def test_side_data_of_a_queue_that_is_created_again_stays(server: PrivateServer, client: Client):
    stale_side_data(server)
    findings = examine(client)
    with_queue(server)
    server.redis.zadd("rsmq:q", {ID: 1e12})

    repair(client, findings, wait=no_wait)

    assert server.redis.hkeys("rsmq::dead:q") == [ID.encode()]


# -- How it goes about it --------------------------------------------------------------------------------------------


def test_one_wait_serves_all_repairs(server: PrivateServer, client: Client):
    phantoms(server)
    orphan_bodies(server)
    orphan_counters(server)
    server.redis.sadd("rsmq:QUEUES", "gone")
    waits: list[float] = []

    mended(client, wait=waits.append)

    assert waits == [5.0]


def test_repair_without_a_second_check_does_not_wait(server: PrivateServer, client: Client):
    fractional_attribute(server)

    mended(client, wait=lambda _: pytest.fail("there is nothing to wait for"))


def test_more_suspects_than_fit_in_memory_are_repaired_in_turns(
    server: PrivateServer, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repairs_module, "SUSPECTS_AT_A_TIME", 1000)
    with_queue(server)
    server.redis.zadd("rsmq:q", {f"{number:032d}": 1e12 for number in range(2500)})
    waits: list[float] = []

    (done,) = [one for one in mended(client, wait=waits.append) if one.finding.id == "phantoms"]

    assert done.changed == 2500
    assert len(waits) == 3
    assert not server.redis.exists("rsmq:q")


def test_thousands_of_orphans_are_moved_in_bounded_pieces(server: PrivateServer, client: Client):
    with_queue(server)
    server.redis.hset("rsmq:q:Q", mapping={f"{number:032d}": "x" * 100 for number in range(2500)})

    (done,) = mended(client)

    assert done.changed == 2500
    assert Queue("q-orphans", client).attributes().messages == 2500


@pytest.mark.parametrize("key", ["rsmq:q-orphans", "rsmq:q-orphans:Q"])
def test_failure_of_one_repair_is_reported_and_does_not_stop_the_others(
    server: PrivateServer, client: Client, key: str
):
    orphan_bodies(server)
    server.redis.hset("rsmq:q:Q", f"{'C' * 32}:rc", 1)
    server.redis.set(key, "somebody else's")

    done = {one.finding.id: one for one in mended(client)}

    assert "wrong type" in done["orphan-bodies"].failure
    assert done["orphan-counters"].changed == 1
    assert server.redis.hget("rsmq:q:Q", ID) == b"one"


def test_repair_without_write_permission_changes_nothing_and_reports_that(server: PrivateServer, client: Client):
    phantoms(server)
    findings = examine(client)
    server.redis.execute_command("ACL", "SETUSER", "looker", "on", ">secret", "~*", "+@all", "-@write")
    looker = Client(Connection(server.url.replace("unix://", "unix://looker:secret@"), timeout_s=15))

    (done,) = repair(looker, findings, wait=no_wait)

    server.redis.execute_command("ACL", "DELUSER", "looker")
    assert done.changed == 0 and "may not run" in done.failure
    assert server.redis.zcard("rsmq:q") == 2


@every_damage
def test_rights_of_the_documentation_are_enough_to_repair(
    server: PrivateServer, client: Client, damage: Damage, kind: str
):
    damage(server)
    findings = [one for one in examine(client) if one.id == kind]
    (looking,) = re.findall(r"^```\n(\+.*?)^```", DOCUMENTATION, re.MULTILINE | re.DOTALL)
    rules = f"reset on >secret {COMMON} {ROLES['worker']} {looking} +persist"
    server.redis.execute_command("ACL", "SETUSER", "mender", *rules.split())
    mender = Client(Connection(server.url.replace("unix://", "unix://mender:secret@"), timeout_s=15))

    done = repair(mender, findings, wait=no_wait)

    server.redis.execute_command("ACL", "DELUSER", "mender")
    assert [one.failure for one in done] == [""] * len(findings)


def test_findings_without_a_repair_are_left_out(server: PrivateServer, client: Client):
    with_queue(server, vt="30000")

    assert mended(client) == []


def test_many_stuck_workflows_are_one_finding_that_repairs_all(server: PrivateServer, client: Client):
    for number in range(1, 8):
        key = f"rsmq::workflow:w{number}"
        server.redis.zadd("rsmq::workflows", {f"w{number}": number})
        server.redis.hset(key, mapping={"status": "running", "sealed": 0, "sent": 2, "keep_ms": 7 * 86_400_000})
        server.redis.pexpire(key, 7 * 86_400_000 - 7 * 3_600_000)

    (finding,) = [one for one in examine(client) if one.id == "stuck-workflow"]
    (done,) = repair(client, [finding], wait=lambda seconds: None)

    assert (finding.subject, finding.examples) == ("workflows", ("w7", "w6", "w5"))
    assert finding.what.startswith("7 workflows; longest idle ") and done.changed == 7
    assert {server.redis.hget(f"rsmq::workflow:w{number}", "status") for number in range(1, 8)} == {b"cancelled"}


def test_workflow_whose_sender_has_continued_since_it_was_found_is_not_cancelled(server: PrivateServer, client: Client):
    stuck_workflow(server)
    (finding,) = [one for one in examine(client) if one.id == "stuck-workflow"]
    server.redis.pexpire("rsmq::workflow:w1", 7 * 86_400_000 - 60_000)  # a minute ago

    (done,) = repair(client, [finding], wait=lambda seconds: None)

    assert done.changed == 0
    assert server.redis.hget("rsmq::workflow:w1", "status") == b"running"
