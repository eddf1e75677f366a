"""The operator's session in docs/how-to/command_line.md runs, command by command, and prints what the page shows.

What differs from run to run (ids, times, durations, sizes) is replaced by its kind before the two are compared. An id
that the page shows stands for the one that was really printed there, so that later commands can use it.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.stats.events import FIELDS
from tests.cli.conftest import SCRIPT
from tests.redis_server import PrivateServer

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "command_line.md"

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
MESSAGE_ID = re.compile(r"\b[h-z][0-9a-z]{9}[A-Za-z0-9]{22}\b")
VARYING = {
    "ID": MESSAGE_ID,
    "RUN": re.compile(r"\b1\d{12}-\d+\b"),
    "MOMENT": re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"),
    "EPOCH": re.compile(r"\b1\d{9}(\d{3})?\b"),
    "DURATION": re.compile(r"\b(\d+(\.\d+)?(ms|s)|\d+[mhd](\d+[smh])?)\b"),
    "SECONDS": re.compile(r'(?<="oldest_ready_s": )[\d.]+'),
    "BYTES": re.compile(r'(?<="size_bytes": )\d+|\b[\d.]+K$', re.MULTILINE),
    " ": re.compile(r" {2,}"),
}


def steps() -> list[tuple[str, str]]:
    """Return the commands of the page, each with the output that the page shows."""
    found = []
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def plain(text: str) -> str:
    """Replace what differs from run to run by its kind."""
    for kind, pattern in VARYING.items():
        text = pattern.sub(kind, text)
    return text


def fail_some_tasks(server: PrivateServer) -> None:
    """Leave the dead letters of this morning."""
    client = Client(Connection(server.url, timeout_s=15))
    Queue("mail", client).create()
    dead = Queue("mail-dead", client)
    dead.create(max_size_bytes=-1)
    errors = [("attempts_used_up", "builtins.ConnectionError", "mail server is down")] * 2
    for number, (reason, error, message) in enumerate([*errors, ("gave_up", "shop.mail.BadAddress", "jane@nowhere")]):
        message_id = dead.send(json.dumps({"task": "shop.tasks.send_receipt", "kwargs": {"order_id": 5 + number}}))
        trace = 'Traceback (most recent call last):\n  File "/srv/shop/tasks.py", line 12, in send_receipt\n'
        record = {"reason": reason, "queue": "mail", "task": "shop.tasks.send_receipt", "error": error}
        record |= {"message": message, "traceback": f"{trace}{error}: {message}\n", "worker": "web1-4711"}
        numbers = {"attempts": 1, "died_ms": server.redis.time()[0] * 1000 - 600_000}
        whole = json.dumps(record | numbers | {"task_id": "QTVi1UhwiWMElwUhTBW4Ty"})
        server.redis.hset("rsmq:mail-dead:Q", f"{message_id}:rc", 5)
        server.redis.hset("rsmq::dead:mail-dead", message_id, whole)


def fail_some_payments(server: PrivateServer) -> None:
    """Leave four dead letters of this night, and the run of one of them."""
    client = Client(Connection(server.url, timeout_s=15))
    Queue("pay", client).create()
    dead = Queue("pay-dead", client)
    dead.create()
    record = {"reason": "gave_up", "queue": "pay", "task": "shop.tasks.pay", "error": "builtins.ConnectionError"}
    for task_id in ("a1", "b2", "c3", "xWc1uJ3hRk9mB5tQe7Ys2A"):
        died = dead.send(json.dumps({"task": "shop.tasks.pay", "id": task_id}))
        server.redis.hset(
            "rsmq::dead:pay-dead", died, json.dumps(record | {"task_id": task_id, "message": "no answer"})
        )
    fields = dict.fromkeys(FIELDS, "") | {"e": "dead", "q": "pay", "t": "shop.tasks.pay", "i": task_id, "m": died}
    fields |= {"a": "1", "w": "2000", "r": "1500000", "x": "builtins.ConnectionError", "y": "no answer"}
    server.redis.xadd(
        "rsmq::events", {"v": "\n".join(fields.values())}, id=f"{server.redis.time()[0] * 1000 - 180_000}-0"
    )


def lose_a_queue(server: PrivateServer) -> None:
    """Leave a queue's name on the list, and nothing else of it."""
    server.redis.sadd("rsmq:QUEUES", "invoices")


def hidden(server: PrivateServer) -> list[tuple[bytes, bytes, float]]:
    """Return queue, id and score of each message that nobody can receive now."""
    seconds, microseconds = server.redis.time()
    now_ms = seconds * 1000 + microseconds // 1000
    queues = [b"rsmq:" + name for name in server.redis.smembers("rsmq:QUEUES")]
    ranges: list[tuple[bytes, Any]] = [
        (queue, server.redis.zrangebyscore(queue, f"({now_ms}", "+inf", withscores=True)) for queue in queues
    ]
    return [(queue, message_id, score) for queue, messages in ranges for message_id, score in messages]


def keep_hidden(server: PrivateServer, before: list[tuple[bytes, bytes, float]], *, passed_s: float) -> None:
    """Let the time that a command took not count: the page may take longer than its messages are hidden.

    Only for what was hidden before the command and was left alone by it: a message that it sent is ready at once.
    """
    for queue, message_id, score in before:
        if server.redis.zscore(queue, message_id) == score:
            server.redis.zadd(queue, {message_id: score + passed_s * 1000})


#: What the page says has happened, before the first command that begins so.
HAPPENED = {"rsmqctl message list -n mail-dead": fail_some_tasks, "rsmqctl queue repair --dry-run": lose_a_queue}
HAPPENED["rsmqctl task list --outcome failed --since 1d"] = fail_some_payments


@pytest.mark.slow
@pytest.mark.deadline(1200)  # it starts a process for each command of the page
def test_page_shows_what_happens(server: PrivateServer):
    environment = {**os.environ, "REDIS_URL": server.url, "PATH": f"{SCRIPT.parent}:{os.environ['PATH']}"}
    real_ids: dict[str, str] = {}
    happens = dict(HAPPENED)

    for command, shown in steps():
        if command in happens:
            happens.pop(command)(server)
        for of_the_page, real in real_ids.items():
            command = command.replace(of_the_page, real)
        before, began_s = hidden(server), time.monotonic()
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
        keep_hidden(server, before, passed_s=time.monotonic() - began_s)
        printed = done.stdout + done.stderr

        assert plain(printed) == plain(shown), f"$ {command}\n{printed}"
        real_ids |= dict(zip(MESSAGE_ID.findall(shown), MESSAGE_ID.findall(printed), strict=True))


def test_page_has_a_session():
    assert len(steps()) > 25
