"""Signed and encrypted queues at work: what is sealed runs, everything else becomes a dead letter with its reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from rsmq_django import schedules
from rsmq_django.conf.settings import get_settings
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.reliable_queues import get_reliable_queue
from rsmq_django.tasks import cancel, consumer, current_task
from rsmq_django.tasks.compat import InvalidTask, task_backends
from rsmq_django.tasks.sealing import seal
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, the_dead_letter, work

SECURITY = Path(__file__).parents[3] / "docs" / "how-to" / "security.md"
SIGNED = {"SIGNING_KEYS": ["k" * 32]}
ENCRYPTED = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}


@pytest.fixture(params=[SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def sealed(request: pytest.FixtureRequest, configure: Configure) -> dict[str, Any]:
    """A project whose queue "default" is sealed."""
    options: dict[str, Any] = request.param
    configure(default=options)
    return options


def test_a_sealed_call_runs_and_its_result_can_be_read(sealed: dict[str, Any]):
    declared = declare(lambda number, *, colour: f"{number} {colour}")
    result = declared.enqueue(7, colour="red")
    urgent = declared.using(priority=5).enqueue(8, colour="blue")
    waiting = task_backends["default"].get_result(result.id)
    assert (waiting.args, waiting.kwargs) == ([7], {"colour": "red"})

    work()

    done = task_backends["default"].get_result(result.id)
    assert (done.return_value, done.args) == ("7 red", [7])
    assert task_backends["default"].get_result(urgent.id).return_value == "8 blue"


@pytest.mark.parametrize("options", [SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def test_a_sealed_queue_may_be_called_like_a_band(configure: Configure, options: dict[str, Any]):
    configure(**{"orders-p1": options})
    seen: list[int] = []
    result = declare(queue_name="orders-p1")(lambda number: seen.append(number)).enqueue(7)
    assert task_backends["default"].get_result(result.id).args == [7]

    work()

    assert seen == [7]


@pytest.mark.parametrize(("options", "reason"), [(SIGNED, "unsigned"), (ENCRYPTED, "not_decrypted")])
def test_a_call_that_another_program_wrote_into_redis_never_runs(
    configure: Configure, options: dict[str, Any], reason: str
):
    configure(default=options)
    seen: list[str] = []
    declare(lambda: seen.append("ran"))
    body = json.dumps({"task": "tests.worker.execute.test_sealed_queues.<lambda>"}).encode()
    send_raw(body)

    work()

    message, record = the_dead_letter()
    assert (seen, record["reason"], message.body) == ([], reason, body)


def test_a_message_that_was_taken_from_another_queue_never_runs(configure: Configure):
    configure(default=SIGNED, other=SIGNED)
    seen: list[str] = []
    declare(queue_name="other")(lambda: seen.append("ran")).enqueue()
    stolen = get_queue("other").pop()
    send_raw(stolen.body)

    work()

    assert (seen, the_dead_letter()[1]["reason"]) == ([], "bad_signature")


def test_a_task_of_a_sealed_queue_does_not_run_from_a_queue_without_keys(configure: Configure):
    configure(default=SIGNED, open={})
    seen: list[str] = []
    path = declare(lambda: seen.append("ran")).module_path
    send_raw(json.dumps({"task": path}), "open")

    work()

    assert (seen, the_dead_letter("open-dead")[1]["reason"]) == ([], "unsigned")


def test_a_task_of_a_sealed_queue_does_not_run_from_a_reliable_queue(
    configure: Configure, settings: Any, caplog: pytest.LogCaptureFixture
):
    configure(default=SIGNED)
    settings.RSMQ = settings.RSMQ | {"RELIABLE": {"orders": {}}}
    seen: list[str] = []
    path = declare(lambda: seen.append("ran")).module_path
    get_reliable_queue("orders").push(json.dumps({"task": path}).encode())

    work()

    assert seen == []
    assert "failed for good (unsigned)" in caplog.text


def test_a_task_of_a_sealed_queue_cannot_be_sent_to_a_queue_without_keys(configure: Configure):
    configure(default=SIGNED, open={}, other=SIGNED)
    task = declare(lambda: None)

    with pytest.raises(InvalidTask, match="only from queues with keys"):
        task.using(queue_name="open").enqueue()
    task.using(queue_name="other").enqueue()


def test_a_consumer_gets_the_body_without_its_seal(sealed: dict[str, Any]):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    ensure_queue("default").send(seal(b"21.5", get_settings().queue("default"), name="default", namespace="rsmq"))

    work()

    assert seen == [b"21.5"]


def test_a_sealed_call_can_be_cancelled(sealed: dict[str, Any], server: PrivateServer):
    result = declare(lambda secret: None, result_ttl_s=0).enqueue("hush")

    assert cancel(result.id)

    assert server.redis.zcard("rsmq:default") == 0


def test_no_part_of_an_encrypted_call_is_in_redis_in_plain_text(configure: Configure, server: PrivateServer):
    configure(default=ENCRYPTED)
    declare(lambda secret: None, max_attempts=1).enqueue("hush hush")

    work()

    for key in server.redis.keys():
        if server.redis.type(key) == b"hash":
            assert not any(b"hush" in value for value in server.redis.hvals(key)), key


def test_what_is_not_encrypted_is_on_the_page(configure: Configure, server: PrivateServer):
    configure(default=ENCRYPTED)

    def sell(customer: str) -> str:
        current_task().progress(1, 2, "the-note")
        return "the-value"

    declared = declare(tags=["the-tag"])(sell)
    schedules.add("daily", declared, every_s=86_400, args=["every-day"])
    declared.enqueue("hush")

    work()

    stored = "".join(f"{key!r}{everything_in(key, server)}" for key in server.redis.keys())
    plain = {
        "default": "the queue's name",
        declared.module_path: "names of tasks",
        "the-tag": "tags",
        "the-note": "note",
        "every-day": "arguments of schedules",
        "the-value": "return values",
    }
    (said,) = re.findall(r"^Not encrypted are: .*?\n\n", SECURITY.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert "hush" not in stored
    assert {word: word in stored and name in said for word, name in plain.items()} == dict.fromkeys(plain, True)


def everything_in(key: bytes, server: PrivateServer) -> Any:
    redis = server.redis
    readers: dict[bytes, Callable[[], Any]] = {
        b"string": lambda: redis.get(key),
        b"hash": lambda: redis.hgetall(key),
        b"list": lambda: redis.lrange(key, 0, -1),
        b"set": lambda: redis.smembers(key),
        b"zset": lambda: redis.zrange(key, 0, -1),
        b"stream": lambda: redis.xrange(key),
    }
    return readers[redis.type(key)]()


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing (Debian: apt-get install nodejs)")
def test_a_program_in_another_language_can_sign_as_documented(configure: Configure):
    configure(payments=SIGNED)
    page = SECURITY.read_text("utf-8")
    (script,) = re.findall(r"^```js\n(.*?)^await ", page, re.MULTILINE | re.DOTALL)
    seen: list[int] = []
    path = declare(queue_name="payments")(lambda order_id: seen.append(order_id)).module_path
    script = (
        script.replace("shop.tasks.charge", path)
        + "console.log(JSON.stringify({ signed: body, signature_v2: signature }));"
    )
    environment = {**os.environ, "PAYMENTS_KEY": SIGNED["SIGNING_KEYS"][0]}
    message = subprocess.run(["node", "-e", script], env=environment, check=True, capture_output=True).stdout.strip()

    send_raw(message, "payments")
    work()

    assert seen == [7]
