"""Failures: one line for people, one object for programs, no password, the right exit code."""

import json
import os
import re
import subprocess
from collections.abc import Callable

import pytest

from rsmq_django.cli.output import as_duration, as_size, columns, cut, printable
from rsmq_django.core import Queue
from tests.cli.conftest import SCRIPT, Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]


# -- The machine form -------------------------------------------------------------------------------------------------

ERRORS = {
    "queueNotFound": ("queue", "describe", "-n", "nope"),
    "queueExists": ("queue", "create", "-n", "jobs"),
    "invalidFormat": ("queue", "create", "-n", "a b"),
    "invalidValue": ("queue", "create", "-n", "q", "-d", "-1"),
    "noAttributeSupplied": ("queue", "set", "-n", "jobs"),
    "messageTooLong": ("message", "send", "-n", "jobs", "-m", "x" * 65_537),
    "messageNotFound": ("message", "delete", "-n", "jobs", "-i", "x"),
    "connectionFailed": ("-r", "redis://127.0.0.1:1", "queue", "list"),
    "invalidUrl": ("-r", "http://localhost", "queue", "list"),
}


@pytest.mark.parametrize(("name", "words"), ERRORS.items(), ids=ERRORS)
def test_errors_as_json_carry_the_names_of_the_reference(rsmqctl: Run, queue: Queue, name: str, words: tuple[str, ...]):
    failed = rsmqctl("--json", *words)

    assert (failed.exit_code, failed.output) == (1, "")
    assert failed.errors.count("\n") == 1
    error = json.loads(failed.errors)
    assert error["error"] == name
    assert f"Error: {error['message']}\n" == rsmqctl(*words).errors


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "queue", "create"),
        ("queue", "create", "--json"),
        ("--json", "queue", "crate"),
        ("--json", "message", "receive", "-n", "q", "--count", "0"),
        ("queue", "create", "-n", "q", "-t", "soon", "--json"),
    ],
    ids=" ".join,
)
def test_mistakes_in_the_command_line_as_json(rsmqctl: Run, words: tuple[str, ...]):
    wrong = rsmqctl(*words)

    assert (wrong.exit_code, wrong.output) == (2, "")
    assert json.loads(wrong.errors)["error"] == "usage"


def test_json_inside_a_body_is_not_an_option(rsmqctl: Run):
    failed = rsmqctl("message", "send", "-n", "nope", "-m", "--json")

    assert failed.errors.startswith("Error: ")


# -- Passwords --------------------------------------------------------------------------------------------------------

URLS = [
    "redis://:geheim@127.0.0.1:1/0",
    "redis://user:geheim@127.0.0.1:1/0",
    "rediss://user:geheim@127.0.0.1:1",
    "redis://127.0.0.1:1?password=geheim",
    "unix://user:geheim@/nowhere/socket",
    "redis://user:geheim/slash@127.0.0.1:1",
    "redis://user:x/geheim@127.0.0.1:1",
    "redis://user:x#geheim@127.0.0.1:1",
    "redis://user:x?geheim@127.0.0.1:1",
    "redis://user:geheim@127.0.0.1:port",
    "redis://user:x@geheim@127.0.0.1:1",
    "redis://user:geheim@127.0.0.1:1?socket_timeout=soon",
    "redis://user:geheim@[::1",
    "http://user:geheim@127.0.0.1",
    "user:geheim@127.0.0.1",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("options", [(), ("-v",), ("--json",)], ids=str)
def test_password_is_never_printed(rsmqctl: Run, monkeypatch: pytest.MonkeyPatch, url: str, options: tuple[str, ...]):
    monkeypatch.setenv("REDIS_URL", url)

    failed = rsmqctl(*options, "queue", "list")

    assert failed.exit_code == 1
    assert "geheim" not in failed.errors + failed.output
    assert "Traceback" not in failed.errors or options == ("-v",)


def test_wrong_password_is_reported_without_the_password(script: Run, server: PrivateServer):
    failed = script("queue", "list", REDIS_URL=server.url.replace("unix://", "unix://nobody:geheim@"))

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: ")
    assert "refused the user or password" in failed.errors
    assert "geheim" not in failed.errors


# -- People's form ----------------------------------------------------------------------------------------------------


def test_verbose_shows_the_traceback_before_the_line(rsmqctl: Run):
    failed = rsmqctl("-v", "queue", "describe", "-n", "nope")

    assert failed.exit_code == 1
    *trace, line = failed.errors.splitlines()
    assert "Traceback (most recent call last):" in trace
    assert re.fullmatch("Error: queue not found: nope; .*", line)


def test_queue_that_another_program_uses_is_named(rsmqctl: Run, server: PrivateServer):
    server.redis.set("rsmq:jobs:Q", "something else")

    failed = rsmqctl("message", "peek", "-n", "jobs")

    assert failed.exit_code == 1
    assert "'jobs': one of its keys has the wrong type" in failed.errors


@pytest.mark.parametrize("namespace", ["x:", "a\0b"])
def test_impossible_namespace_is_refused(rsmqctl: Run, namespace: str):
    failed = rsmqctl("--ns", namespace, "queue", "list")

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: invalid namespace: ")


@pytest.mark.slow
def test_closed_output_pipe_is_not_reported_as_an_error(environment: None, queue: Queue):
    queue.send_many([b"x" * 1000] * 1000)
    words = [SCRIPT, "message", "list", "-n", "jobs", "--json", "--all"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.readline()
        listing.stdout.close()
        errors = listing.stderr.read()

    assert errors == b""
    assert listing.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 60_000])
def test_output_pipe_that_was_closed_before_is_not_reported_as_an_error(environment: None, queue: Queue, size: int):
    message_id = queue.send(b"x" * size)
    reader, writer = os.pipe()
    os.close(reader)

    words = [SCRIPT, "message", "show", "-n", "jobs", "-i", message_id, "--raw"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, env=buffered, check=False)
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")


# -- Forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grün 日本 🎉", "grün 日本 🎉"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\u202e\u2066\u200b\u2028", "\\u202e\\u2066\\u200b\\u2028"),
        ("\udcff\U000e0001", "\\udcff\\U000e0001"),
    ],
)
def test_text_of_others_is_shown_and_not_obeyed(text: str, shown: str):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0004, "0ms"),
        (0.5, "500ms"),
        (2.34, "2.3s"),
        (42, "42s"),
        (59.7, "1m"),
        (75, "1m15s"),
        (3600, "1h"),
        (7500, "2h5m"),
        (90_000, "1d1h"),
        (float("inf"), "forever"),
    ],
)
def test_durations_are_short(seconds: float, shown: str):
    assert as_duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0"), (999, "999"), (1024, "1.0K"), (20_480, "20K"), (5 * 2**30, "5.0G"), (2**50, "1024.0T")],
)
def test_sizes_are_short(size: int, shown: str):
    assert as_size(size) == shown


def test_cut_counts_columns_and_not_letters():
    assert cut("日本語日本語", 7) == "日本語…"
    assert columns("e\u0301") == 1
    assert cut("short", 5) == "short"
