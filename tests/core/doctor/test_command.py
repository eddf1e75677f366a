"""`manage.py rsmq_doctor`: its output, its confirmation, its exit status."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from rsmq_django.core.doctor import repairs as repairs_module
from rsmq_django.core.doctor import server as server_module
from rsmq_django.core.tasks.processes import ProcessRecord, describe
from rsmq_django.queues import ensure_queue, get_client, get_queue, pause_queue
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.acl_users import user_of
from tests.redis_server import PrivateServer

PLAIN: dict[Any, Any] = {"vt": "30", "delay": "0", "maxsize": "65536", "created": "1", "modified": "1"}


#: How errors end that do not keep the command from printing its findings.
ENDINGS = ("errors", "of all", "could not be repaired", "nothing was changed")


class Terminal(io.StringIO):
    """Standard input of somebody who sits there and answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _project(settings: Any, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}, "QUEUES": {"mail": {}}}
    server.redis.hset("rsmq:mail:Q", mapping=PLAIN)
    server.redis.sadd("rsmq:QUEUES", "mail")
    monkeypatch.setattr(repairs_module, "GRACE_S", 0)
    # The tests also run on old servers.
    monkeypatch.setattr(server_module, "vulnerabilities_of", lambda *_: [])


def damage(server: PrivateServer) -> None:
    server.redis.hset("rsmq:mail:Q", "vt", "abc")


def run(*words: str) -> tuple[str, int]:
    """Run the command; return what it printed about each connection and its exit status."""
    out, status = io.StringIO(), 0
    try:
        call_command("rsmq_doctor", *words, stdout=out, stderr=io.StringIO(), no_color=True)
    except CommandError as end:
        if end.returncode != 1 or not str(end).endswith(ENDINGS):
            raise
        status = end.returncode
    # The line about all connections is tested with that of the admin.
    return re.sub(r"^all connections: .*\n", "", out.getvalue(), flags=re.MULTILINE), status


def test_healthy_project_has_no_findings_and_ends_well():
    text, status = run()

    assert (text, status) == ("connection default: no findings\n", 0)


def test_finding_is_printed_with_reason_and_remedy_and_an_error_ends_badly(server: PrivateServer):
    damage(server)

    text, status = run()

    assert status == 1
    assert text.splitlines() == [
        "connection default: 1 finding",
        "error    mail: vt is 'abc' (broken-attribute)",
        "         no client can use it: receives or sends fail, or limits are ignored",
        "         examples: vt",
        "         repair: set it to the value of the settings, or to RSMQ's default",
    ]
    assert server.redis.hget("rsmq:mail:Q", "vt") == b"abc"


def test_warning_ends_well(server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "gone")

    text, status = run()

    assert "warning  gone: it is on the list" in text and status == 0


def test_warning_ends_badly_when_it_is_below_the_standard_that_was_asked_for(server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "gone")

    assert run("--fail-level", "warning")[1] == 1
    assert run("--fail-level", "error")[1] == 0


def test_stored_attributes_are_compared_with_the_settings(server: PrivateServer, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"VISIBILITY_TIMEOUT_S": 60}, "news": {}}}

    text, status = run()

    assert "mail: vt is 30, the settings say 60" in text and status == 0
    assert "news: it does not exist yet" in text
    assert "-dead" not in text


def test_unit_of_the_settings_is_known_to_the_doctor(server: PrivateServer, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"VT_UNIT": "ms", "VISIBILITY_TIMEOUT_S": 30}}}
    assert run()[1] == 1

    server.redis.hset("rsmq:mail:Q", "vt", "30000")

    assert run() == ("connection default: no findings\n", 0)


def test_server_that_is_down_does_not_hide_the_findings_about_the_others(server: PrivateServer, settings: Any):
    gone = {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 1}
    settings.RSMQ = {"CONNECTIONS": {"gone": gone, **settings.RSMQ["CONNECTIONS"]}, "QUEUES": {"mail": {}}}
    server.redis.sadd("rsmq:QUEUES", "gone")
    out = io.StringIO()

    with pytest.raises(CommandError, match="cannot connect to redis://127.0.0.1:1/0") as ended:
        call_command("rsmq_doctor", json=True, stdout=out)

    (report,) = json.loads(out.getvalue())["connections"]
    assert report["alias"] == "default"
    assert "missing-queue" in {finding["id"] for finding in report["findings"]}
    assert ended.value.returncode == 1


def test_every_connection_is_examined_or_the_one_that_is_named(server: PrivateServer, settings: Any):
    other = {"URL": server.url, "TIMEOUT_S": 15, "NAMESPACE": "other"}
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}, "other": other},
        "QUEUES": {"mail": {}},
    }
    server.redis.sadd("other:QUEUES", "gone")

    assert "gone" in run()[0] and "connection default" in run()[0]
    assert "connection default" not in run("--connection", "other")[0]
    with pytest.raises(CommandError, match="Did you mean 'other'"):
        run("--connection", "othr")


def test_names_of_other_clients_cannot_move_the_cursor(server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "evil\n\x1b[31mred", b"\xff")

    text, _ = run()

    assert "\x1b" not in text and "evil\\n\\x1b[31mred" in text
    assert "\\udcff" in text


# -- Repair ----------------------------------------------------------------------------------------------------------


def test_repair_shows_the_remaining_findings(server: PrivateServer):
    damage(server)

    text, status = run("--repair", "--yes")

    assert "repaired mail: broken-attribute: 1 changed" in text
    assert text.endswith("After the repair:\nconnection default: no findings\n")
    assert status == 0
    assert server.redis.hget("rsmq:mail:Q", "vt") == b"30"


@pytest.mark.parametrize(("answer", "is_mended"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)])
def test_repair_needs_a_confirmation_on_a_terminal(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch, answer: str, is_mended: bool
):
    damage(server)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    text, status = run("--repair")

    assert "repair: set it to the value of the settings" in text
    assert (server.redis.hget("rsmq:mail:Q", "vt") == b"30") is is_mended
    assert status == (0 if is_mended else 1)


def test_repair_without_a_terminal_is_refused(server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    damage(server)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    with pytest.raises(CommandError, match="--yes") as refusal:
        run("--repair")

    assert refusal.value.returncode == 1
    assert server.redis.hget("rsmq:mail:Q", "vt") == b"abc"


def test_answer_without_a_question_is_refused():
    with pytest.raises(CommandError, match="--yes needs --repair") as refusal:
        run("--yes")

    assert refusal.value.returncode == 2


def test_no_confirmation_without_a_possible_repair(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", Terminal(""))

    assert run("--repair") == ("connection default: no findings\n", 0)


def test_repair_that_failed_is_reported(server: PrivateServer):
    server.redis.hset("rsmq:mail:Q", "x" * 32, "a body without a message")
    server.redis.set("rsmq:mail-orphans", "somebody else's")

    text, status = run("--repair", "--yes")

    assert "failed   mail: orphan-bodies: " in text
    assert status == 1


# -- For programs ----------------------------------------------------------------------------------------------------


def test_findings_are_given_as_json(server: PrivateServer):
    damage(server)

    text, status = run("--json")

    assert status == 1
    (report,) = json.loads(text)["connections"]
    assert (report["alias"], report["repairs"]) == ("default", [])
    assert report["findings"] == [
        {
            "id": "broken-attribute",
            "severity": "error",
            "subject": "mail",
            "what": "vt is 'abc'",
            "why": "no client can use it: receives or sends fail, or limits are ignored",
            "repair": "set it to the value of the settings, or to RSMQ's default",
            "examples": ["vt"],
        }
    ]


def test_repairs_are_given_as_json(server: PrivateServer):
    damage(server)

    text, status = run("--json", "--repair", "--yes")

    (report,) = json.loads(text)["connections"]
    (done,) = report["repairs"]
    assert {"id": "broken-attribute", "subject": "mail", "changed": 1, "failure": ""}.items() <= done.items()
    assert (report["findings"], status) == ([], 0)


def test_json_and_a_question_do_not_go_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))

    with pytest.raises(CommandError, match="--yes"):
        run("--json", "--repair")


def test_server_that_cannot_be_reached_is_one_line_without_its_password(settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://user:geheim@127.0.0.1:1"}}}

    with pytest.raises(CommandError) as failure:
        run()

    assert failure.value.returncode == 1
    assert "127.0.0.1:1" in str(failure.value) and "geheim" not in str(failure.value)
    assert "\n" not in str(failure.value)


# -- Whether queues are worked on ----------------------------------------------------------------------------------


def heartbeat(worker_id: str, *queues: str, state: str = "working") -> None:
    """Let a worker send its heartbeat, as its supervisor does."""
    client = get_client()
    record = ProcessRecord("host", 7, "1", 0, None, state, queues, ())
    client.run(heartbeat_call(client, [worker_id]))
    client.run(describe(client.namespace, worker_id, record))


def ids(text: str) -> list[str]:
    return re.findall(r" \(([\w-]+)\)$", text, re.MULTILINE)


def test_queue_with_a_backlog_and_no_worker_is_named(server: PrivateServer):
    get_queue("mail").send_many(["x"] * 3)

    text, status = run()

    assert status == 0
    assert re.search(
        r"^warning  mail: 3 messages are ready, the oldest for \d+ s, "
        r"and no live worker consumes the queue \(unserved\)$",
        text,
        re.MULTILINE,
    )
    assert "manage.py rsmq_worker" in text


def test_queue_that_was_taken_out_of_the_settings_is_named_with_its_messages(server: PrivateServer, settings: Any):
    get_queue("mail").send("x")
    server.redis.zincrby("rsmq:mail", -120_000, server.redis.zrange("rsmq:mail", 0, 0)[0])
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"letters": {}}}

    text, status = run()

    assert "note     mail: 1 message is ready, the oldest for 2 min, and no live worker consumes the queue, " in text
    assert "not-in-settings" in ids(text) and status == 0


def test_priorities_belong_to_the_backlog_of_their_queue():
    ensure_queue("mail-p50").send("x")

    assert "mail: 1 message is ready" in run()[0]


@pytest.mark.parametrize(
    ("state", "queues", "findings"),
    [
        ("working", ["mail"], []),
        ("quiet", ["mail"], ["unserved"]),
        ("working", ["other"], ["unserved"]),
    ],
)
def test_backlog_has_a_worker_when_a_live_one_takes_messages_from_it(
    state: str, queues: list[str], findings: list[str]
):
    get_queue("mail").send("x")
    heartbeat("host-7", *queues, state=state)

    assert ids(run()[0]) == findings


def test_queue_with_different_tasks_in_its_workers_is_reported():
    client = get_client()
    for worker_id, tasks in (("new-1", "8 abc"), ("old-1", "7 def"), ("old-2", "7 def"), ("ancient-1", "")):
        record = ProcessRecord("host", 7, "1", 0, None, "working", ("mail",), (), tasks=tasks)
        client.run(heartbeat_call(client, [worker_id]))
        client.run(describe(client.namespace, worker_id, record))

    text, _ = run()

    assert ids(text) == ["mixed-tasks"]
    assert "its live workers know different tasks (7 tasks: old-1, old-2; 8 tasks: new-1)" in text


def test_paused_queue_with_a_backlog_is_a_note():
    get_queue("mail").send("x")
    pause_queue("mail")

    text, _ = run()

    assert ids(text) == ["paused-backlog"]
    assert text.startswith("connection default: 1 finding\nnote     mail: 1 message is ready")


def test_queue_for_other_programs_needs_no_worker(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"FOR_OTHERS": True}}}
    get_queue("mail").send("x")

    assert ids(run()[0]) == []


def test_dead_letters_are_reported_with_the_next_step():
    ensure_queue("mail-dead").send_many(["x", "y"])

    text, status = run()

    assert "warning  mail-dead: 2 dead letters (dead-letters)" in text
    assert "rsmq_redrive" in text and status == 0


def test_dead_letters_in_a_queue_that_workers_take_from_are_an_ordinary_backlog(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"DEAD_LETTER": "repairs"}, "repairs": {}}}
    ensure_queue("repairs").send("x")

    assert ids(run()[0]) == ["unserved"]


def test_worker_without_a_heartbeat_is_named(server: PrivateServer):
    heartbeat("host-7", "mail")
    heartbeat("host-8", "mail")
    server.redis.zincrby("rsmq::workers", -120_000, "host-7")

    text, _ = run()

    assert ids(text) == ["stale-worker"]
    assert "host-7: it has sent no heartbeat for 2 min" in text


def test_evicted_keys_are_named(server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    read = server_module._read_info
    monkeypatch.setattr(server_module, "_read_info", lambda probe: read(probe) | {"evicted_keys": "12"})

    text, status = run()

    assert "warning  server: it has evicted 12 keys since its start (evicted-keys)" in text
    assert status == 0


def test_durability_that_cannot_be_reached_is_an_error(settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15, "DURABILITY": {"REPLICAS": 2}}},
        "QUEUES": {"mail": {}},
    }

    text, status = run()

    assert status == 1
    assert text.splitlines()[:2] == [
        "connection default: 1 finding",
        "error    server: the durability of the connection 'default' asks for 2 replicas, and its server has 0: "
        "no send would be confirmed (not-durable)",
    ]


def test_user_who_may_read_almost_nothing_ends_it_badly(settings: Any, server: PrivateServer):
    with user_of(server, "sender", without="hello") as url:
        settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 15}}}
        text, status = run()

    assert status == 1
    assert re.search(r"error +server: the server's user was refused \d+ of \d+ questions; .*rsmqctl acl viewer", text)
