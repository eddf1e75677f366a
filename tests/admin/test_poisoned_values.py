"""Numbers that another program has left in Redis break no page and no scrape."""

import itertools
import re
import time
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client as Browser
from django.test import RequestFactory

from rsmq_django.core.keys import counters_key
from rsmq_django.core.stats.history import RESOLUTIONS
from rsmq_django.telemetry.metrics import metrics
from tests.admin.test_every_address import addresses, things  # noqa: F401
from tests.redis_server import PrivateServer

POISONS = (
    *("nan", "inf", "-inf", "1e400", "-1e308", "1e308", "9" * 400, "-" + "9" * 400, "9" * 5000),
    *("9223372036854775808", "-9223372036854775809", "1e18", "-1", "1.5", "", "-", " 7 ", "1_000", "0x10"),
    *("٣", "²", "\x00", "{}", "[1]", b"\xff\xfe"),
)
#: A score is a number, but any number.
SCORES = ("inf", "-inf", "1e308", "-1e308", "1e18", "-1", "0.5")
#: By the kind of record, what its keys begin with.
KINDS = {
    "queues": "rsmq:mail",
    "counters": "rsmq::stats",
    "results": "rsmq::result",
    "workflows": "rsmq::workflow",
    "schedules": "rsmq::schedule",
    "events": "rsmq::events",
    "workers": "rsmq::",
    "topics": "orders",
    "reliable": "rsmq::reliable",
}
NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?")


@pytest.fixture
def records(things: dict[str, str], server: PrivateServer) -> dict[str, str]:  # noqa: F811
    """One of each thing, with all numbers that such a thing can have."""
    redis, now_s = server.redis, time.time()
    for resolution in RESOLUTIONS:
        for begins_s in (int(now_s // resolution.span_s) * resolution.span_s - n * resolution.span_s for n in (0, 1)):
            redis.hset(counters_key("rsmq", "mail", resolution.span_s, begins_s), mapping=counters())
    redis.hset("rsmq::stats:mail:total", mapping=counters())
    times = ("enqueued_ms", "started_ms", "finished_ms", "attempted_ms", "run_after_ms", "progress_ms")
    redis.hset("rsmq::result:t7", mapping=dict.fromkeys(times, "1700000000000"))
    redis.hset("rsmq::result:t7", mapping={"worker:1": "w1", "error:1": '["a.B", "trace"]', "progress": "0.5"})
    message = things["message"].partition("/")[2]
    redis.hset("rsmq:mail:Q", mapping={f"{message}:rc": "1", f"{message}:fr": "1700000000000"})
    redis.hset("rsmq:mail:Q", mapping={"totalrecv": "1"})
    state = {"planned:nightly": "1", "fired:nightly": "1", "fired_ms:nightly": "1", "skipped:nightly": "1"}
    redis.hset("rsmq::schedule:state", mapping=state)
    redis.hset("rsmq::process:w1", mapping={"host": "h", "pid": 1, "age_ms": 1, "memory_bytes": 1, "running": "a 1"})
    return things


def counters() -> dict[str, str]:
    fields = ("sent:a", "succeeded:a", "retried:a", "wait_us:a", "run_us:a", "wait:7:a", "run:7:a")
    return dict.fromkeys((*fields, "=ready", "=messages", "=oldest_ms", "=sent", "=received"), "1")


def plant(server: PrivateServer, beginning: str, poisons: tuple[str | bytes, ...]) -> None:
    """Put poisons, one after the other, where a number is under keys that begin so."""
    redis, next_poison, next_score = server.redis, itertools.cycle(poisons), itertools.cycle(SCORES)
    for key in sorted(redis.scan_iter(beginning + "*")):
        kind = redis.type(key)
        if kind == b"hash":
            for name, value in redis.hgetall(key).items():
                if NUMBER.fullmatch(value):
                    redis.hset(key, name, next(next_poison))
        elif kind == b"zset":
            redis.zadd(key, {member: next(next_score) for member in redis.zrange(key, 0, -1)})
        elif kind == b"string" and NUMBER.fullmatch(redis.get(key)):
            redis.set(key, next(next_poison))
    words = [poison if isinstance(poison, bytes) else poison.encode() for poison in poisons]
    plant_in_names(redis, beginning, words)


def plant_in_names(redis: Any, beginning: str, words: list[bytes]) -> None:
    """Put poisons where a number is part of a field's name, or of a line."""
    if beginning == KINDS["counters"]:
        for key, word in itertools.product(redis.scan_iter("rsmq::stats:mail*"), words):
            redis.hset(key, mapping={b"wait:%s:b" % word: "1", b"run:%s:b" % word: "1"})
    elif beginning == KINDS["results"]:
        for word in words:
            redis.hset("rsmq::result:t7", mapping={b"worker:%s" % word: "w", b"error:%s" % word: "x"})
    elif beginning == KINDS["events"]:
        for word in words:
            values = [b"succeeded", b"mail", b"t", b"i", b"m", *[word] * 5, b"w", b"", b""]
            redis.xadd("rsmq::events", {b"v": b"\n".join(values)})
            redis.set("rsmq::events:dropped", word)


def failures(browser: Browser, things: dict[str, str]) -> Iterator[tuple[str, Any]]:  # noqa: F811
    """Return what does not answer, with the error."""
    for url in addresses(things):
        try:
            status = browser.get(url).status_code
        except Exception as error:
            yield url, error
        else:
            if status >= 500:
                yield url, status
    try:
        assert b"rsmq_up" in metrics(RequestFactory().get("/")).content
    except Exception as error:
        yield "metrics", error
    for words in (["rsmq_stats"],):
        try:
            call_command(*words, stdout=StringIO())
        except Exception as error:
            yield words[0], error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 12])
def test_numbers_that_are_none_break_no_page_and_no_scrape(
    browser: Browser,
    records: dict[str, str],
    server: PrivateServer,
    kind: str,
    first: int,
):
    plant(server, KINDS[kind], POISONS[first:] + POISONS[:first])

    assert not list(failures(browser, records))


def test_key_of_another_type_breaks_no_page_and_no_scrape(
    browser: Browser, records: dict[str, str], server: PrivateServer
):
    for key in [*server.redis.scan_iter("rsmq::*"), *server.redis.scan_iter("orders*"), b"rsmq:mail"]:
        server.redis.set(key, "of another program")

    assert not list(failures(browser, records))


@pytest.mark.parametrize("score", SCORES)
def test_score_that_is_not_a_time_breaks_no_page_and_no_scrape(
    browser: Browser, records: dict[str, str], server: PrivateServer, score: str
):
    for key in ("rsmq:mail", "rsmq::workers", "rsmq::schedule", "rsmq::workflows"):
        server.redis.zadd(key, dict.fromkeys(server.redis.zrange(key, 0, -1), score))

    assert not list(failures(browser, records))
