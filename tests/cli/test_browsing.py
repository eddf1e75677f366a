"""`message peek`, `list`, `show`, `count`: reading without changes."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.core import Queue
from tests.cli.conftest import Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]

DEAD = {
    "reason": "attempts_used_up",
    "queue": "mail",
    "task": "shop.tasks.send_receipt",
    "task_id": "t1",
    "attempts": 5,
    "error": "builtins.ConnectionError",
    "message": "mail server is down",
    "traceback": 'Traceback (most recent call last):\n  File "x.py"\nConnectionError: mail server is down\n',
    "worker": "web1-4711",
}


@pytest.fixture
def bury(queue: Queue, server: PrivateServer) -> Callable[..., str]:
    """Put a dead letter into the queue and return its id."""

    def bury(*, died_s_ago: float = 0, **fields: Any) -> str:
        message_id = queue.send(b'{"task": "shop.tasks.send_receipt"}')
        seconds, microseconds = server.redis.time()
        died_ms = (seconds - died_s_ago) * 1000 + microseconds // 1000
        server.redis.hset("rsmq::dead:jobs", message_id, json.dumps({**DEAD, "died_ms": died_ms, **fields}))
        return message_id

    return bury


# -- Peek -------------------------------------------------------------------------------------------------------------


def test_peek_prints_the_message_without_receiving_it(rsmqctl: Run, queue: Queue):
    ids = queue.send_many([b"one", b"two"])

    peeked = rsmqctl("message", "peek", "-n", "jobs", "--count", "9").json_lines

    assert peeked == [
        {"id": ids[0], "message": "one", "rc": 0, "ts": None},
        {"id": ids[1], "message": "two", "rc": 0, "ts": None},
    ]
    attributes = queue.attributes()
    assert (attributes.hidden_messages, attributes.total_received) == (0, 0)


def test_peek_shows_one_ready_message(rsmqctl: Run, queue: Queue):
    assert rsmqctl("message", "peek", "-n", "jobs").output == "No messages on queue: jobs\n"
    queue.send(b"later", delay_s=60)
    assert rsmqctl("--json", "message", "peek", "-n", "jobs").output == "null\n"

    queue.send_many([b"one", b"two"])

    assert len(rsmqctl("message", "peek", "-n", "jobs").json_lines) == 1


def test_peek_shows_large_messages_whole(rsmqctl: Run, queue: Queue):
    queue.send_many([b"x" * 65_536] * 40)

    peeked = rsmqctl("message", "peek", "-n", "jobs", "--count", "40").json_lines

    assert [len(message["message"]) for message in peeked] == [65_536] * 40


# -- List -------------------------------------------------------------------------------------------------------------


def test_list_is_a_table_in_a_pipe(rsmqctl: Run, queue: Queue):
    queue.send(b"in flight")
    queue.receive()
    ready = queue.send(b"ready")
    queue.send(b"delayed " + b"x" * 1000, delay_s=3600)

    table = rsmqctl("message", "list", "-n", "jobs").output.splitlines()

    assert table[0].split() == ["ID", "STATE", "VISIBLE", "RC", "SIZE", "BODY"]
    assert re.fullmatch(rf"{ready}  ready      +\S+ ago   0     5  ready", table[1])
    assert re.fullmatch(r"\w{32}  in-flight  +in \S+   1     9  in flight", table[2])
    assert re.fullmatch(r"\w{32}  delayed    +in \S+   0  1.0K  delayed x+…", table[3])
    assert len(table[3]) <= 160


def test_list_shows_twenty_by_default(rsmqctl: Run, queue: Queue):
    queue.send_many([b"x"] * 30)

    few = rsmqctl("message", "list", "-n", "jobs")

    assert len(few.output.splitlines()) == 21
    assert few.errors == "20 of 30 messages; --limit N or --all shows more\n"
    assert len(rsmqctl("message", "list", "-n", "jobs", "--limit", "25").output.splitlines()) == 26
    everything = rsmqctl("message", "list", "-n", "jobs", "--all")
    assert (len(everything.output.splitlines()), everything.errors) == (31, "")


@pytest.mark.parametrize(("state", "body"), [("ready", "r"), ("delayed", "d"), ("in-flight", "f")])
def test_list_of_one_state(rsmqctl: Run, queue: Queue, state: str, body: str):
    queue.send(b"f")
    queue.receive()
    queue.send(b"d", delay_s=60)
    queue.send(b"r")

    listed = rsmqctl("--json", "message", "list", "-n", "jobs", "--state", state).json_lines

    assert [(message["message"], message["state"]) for message in listed] == [(body, state)]


def test_list_as_json_holds_everything_with_the_whole_body(rsmqctl: Run, queue: Queue):
    message_id = queue.send(b"\xff" * 5000)

    (message,) = rsmqctl("message", "list", "-n", "jobs", "--json").json_lines

    assert (message["id"], message["rc"], message["ts"], message["size"]) == (message_id, 0, None, 5000)
    assert (len(message["message"]), message["encoding"], message["state"]) == (6668, "base64", "ready")
    assert message["visible"] == pytest.approx(message["sent"], abs=1)


def test_list_of_an_empty_queue_says_that_it_is_empty(rsmqctl: Run, queue: Queue):
    empty = rsmqctl("message", "list", "-n", "jobs")

    assert (empty.exit_code, empty.output, empty.errors) == (0, "", "No messages on queue: jobs\n")


def test_list_of_dead_letters_shows_their_failures(rsmqctl: Run, bury: Callable[..., str]):
    message_id = bury(died_s_ago=7200)
    bury(reason="gave_up", error="shop.Closed")

    table = rsmqctl("message", "list", "-n", "jobs").output.splitlines()

    assert table[0].split() == ["ID", "FAILED", "REASON", "TASK", "ERROR"]
    row = rf"{message_id}  +2h ago  attempts_used_up  send_receipt  ConnectionError: mail server is down"
    assert re.fullmatch(row, table[1])


def test_lists_of_dead_letters_can_be_filtered(rsmqctl: Run, bury: Callable[..., str], queue: Queue):
    bury(died_s_ago=7200)
    bury(reason="gave_up", error="shop.Closed")
    queue.send(b"no record")

    def count(*words: str) -> int:
        listed = rsmqctl("--json", "message", "list", "-n", "jobs", *words).json_lines
        counted = rsmqctl("message", "count", "-n", "jobs", *words).json
        assert len(listed) == counted
        return counted

    assert count() == 3
    assert count("--reason", "gave_up") == 1
    assert count("--error", "Closed") == count("--error", "shop.*") == count("--error", "shop.Closed") == 1
    assert count("--task", "send_*") == count("--task", "shop.tasks.send_receipt") == 2
    assert count("--task", "receipt") == 0
    assert count("--since", "1h") == count("--until", "1h") == 1
    assert count("--since", "1970-01-01", "--until", "2100-01-01T00:00") == 2


@pytest.mark.parametrize("time", ["yesterday", "2h30", "12:00:00x", "-5m"])
def test_time_that_makes_no_sense_is_a_mistake_in_the_command_line(rsmqctl: Run, queue: Queue, time: str):
    wrong = rsmqctl("message", "list", "-n", "jobs", "--since", time)

    assert wrong.exit_code == 2
    assert "neither an age such as 30m" in wrong.errors


def test_bodies_of_others_cannot_give_orders_to_the_terminal(rsmqctl: Run, queue: Queue, server: PrivateServer):
    message_id = queue.send("\x1b]0;title\x07 \u202egpj.exe \r\n\x9b31m")
    server.redis.hset("rsmq::dead:jobs", message_id, json.dumps({**DEAD, "message": "\x1b[2J", "task": "a.\x07"}))

    printed = [
        rsmqctl("message", "list", "-n", "jobs"),
        rsmqctl("message", "show", "-n", "jobs", "-i", message_id),
        rsmqctl("--json", "message", "list", "-n", "jobs"),
        rsmqctl("message", "delete", "-n", "jobs", "-i", "\x1b[2J"),
    ]

    for result in printed:
        text = (result.output + result.errors).replace("\n", "")
        assert text.isprintable(), repr(text)
    assert "\\x1b[2J" in printed[0].output


# -- Show -------------------------------------------------------------------------------------------------------------


def test_show_prints_all_data_of_a_dead_letter(rsmqctl: Run, bury: Callable[..., str]):
    message_id = bury(died_s_ago=90)

    shown = rsmqctl("message", "show", "-n", "jobs", "-i", message_id).output

    assert f"id:             {message_id}\n" in shown
    assert "state:          ready\n" in shown
    assert "receive count:  0\n" in shown
    assert re.search(r"failed:         \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, 1m[3-5]\ds ago\n", shown)
    assert "error:          builtins.ConnectionError: mail server is down\n" in shown
    assert '\n  Traceback (most recent call last):\n    File "x.py"\n' in shown
    assert shown.endswith('\n{\n  "task": "shop.tasks.send_receipt"\n}\n')


def test_show_raw_prints_the_body_byte_by_byte(script: Run, environment: None, queue: Queue):
    import subprocess

    from tests.cli.conftest import SCRIPT

    body = bytes(range(256)) * 500
    queue.set_attributes(max_size_bytes=-1)
    message_id = queue.send(body)

    done = subprocess.run([SCRIPT, "message", "show", "-n", "jobs", "-i", message_id, "--raw"], capture_output=True)

    assert done.stdout == body


def test_show_of_a_message_that_is_not_there_fails(rsmqctl: Run, queue: Queue):
    failed = rsmqctl("message", "show", "-n", "jobs", "-i", "vt")

    assert (failed.exit_code, failed.errors) == (1, "Error: message not found: vt; not on queue jobs\n")


def test_show_of_foreign_data_does_not_fail(rsmqctl: Run, queue: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {"a": 1e300, "b": "inf", "c": -5})
    server.redis.hset("rsmq:jobs:Q", mapping={"b": "[1,", "b:fr": 1e20, "b:rc": "x", "c": "[" * 50_000})
    server.redis.hset("rsmq::dead:jobs", mapping={"a": "no record", "b": '{"died_ms": 1e300}'})

    for message_id in "abc":
        for form in ((), ("--json",)):
            assert rsmqctl("message", "show", "-n", "jobs", "-i", message_id, *form).exit_code == 0
    assert rsmqctl("message", "list", "-n", "jobs").exit_code == 0


# -- Count ------------------------------------------------------------------------------------------------------------


def test_count_prints_a_number(rsmqctl: Run, queue: Queue):
    queue.send_many([b"x"] * 3)
    queue.send(b"x", delay_s=60)

    assert rsmqctl("message", "count", "-n", "jobs").output == "4\n"
    assert rsmqctl("message", "count", "-n", "jobs", "--state", "ready").output == "3\n"
    assert rsmqctl("message", "count", "-n", "jobs", "--state", "hidden").output == "1\n"
    assert rsmqctl("--json", "message", "count", "-n", "jobs").json == {"queue": "jobs", "count": 4}


@pytest.mark.parametrize("command", ["peek", "list", "count"])
def test_reading_a_missing_queue_fails(rsmqctl: Run, command: str):
    failed = rsmqctl("message", command, "-n", "nope")

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: queue not found: nope; ")


def test_queue_with_a_name_of_other_clients_can_be_viewed(rsmqctl: Run, server: PrivateServer):
    server.redis.hset("rsmq:für alle:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536, "a": "hello"})
    server.redis.zadd("rsmq:für alle", {"a": 1})

    assert rsmqctl("message", "peek", "-n", "für alle").json["message"] == "hello"
