"""Replies of the real RedisRQ module, request by request, and replies of our queues to the same requests."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.errors import BrokenQueue, InvalidValue, QueueNotFound
from rsmq_django.core.reliable import ReliableQueue
from tests.redis_server import PrivateServer
from tests.support import wait_until

from .conftest import MakeQueue

TRANSCRIPT = Path(__file__).with_name("redisrq_transcript.txt").read_text("utf-8")
ID = re.compile(r"\d{13}-\d+")
#: A key of ours under which another program has stored something.
FOREIGN_KEY = "rsmq::reliable:s:undelivered"


@dataclass
class Step:
    """One request with the module's reply, or a preparation whose reply was not recorded."""

    request: str
    reply: str = ""


def steps(section: str) -> Iterator[Step]:
    """Return the steps of one section."""
    body = TRANSCRIPT.split(f"# --- {section}", 1)[1].split("\n", 1)[1].split("\n# --- ", 1)[0]
    request = ""
    for line in body.splitlines():
        if line.startswith("# setup: "):
            yield Step(re.split(r"\s+->", line.removeprefix("# setup: "))[0].strip())
        elif line.startswith("> "):
            request = line[2:]
        elif line.startswith("< "):
            yield Step(request, line[2:])


class Replay:
    """Our queues behind the module's words, and the ids that stand for the recorded ones."""

    def __init__(self, make: MakeQueue, server: PrivateServer) -> None:
        self.make = make
        self.server = server
        self.ids: dict[str, str] = {}

    def answer(self, request: str) -> Any:
        """Carry out a request of the module."""
        words = [self.ids.get(word, word) for word in request.split()]
        operation, rest = words[0].removeprefix("RQ."), words[1:]
        if operation == "POP":
            return self.pop(rest)
        if not rest:
            raise InvalidValue("no queue")
        queue, rest = self.make(rest[0]), rest[1:]
        match operation:
            case "PUSH":
                return queue.push(*rest)
            case "ACK":
                return queue.ack(*rest)
            case "INFO":
                return queue.info()
            case "RECOVER":
                return queue.recover(*map(number, rest))
            case "INSPECT":
                pending = rest[0].upper() == "PENDING"
                inspect: Any = queue.inspect
                return inspect(*map(number, rest[pending:]), pending=pending)
        raise AssertionError(request)

    def pop(self, words: list[str]) -> Any:
        options = {"COUNT": 1, "BLOCK": 0}
        for name in options:
            if words and words[0].upper() == name:
                options[name], words = number(words[1]), words[2:]
        if not words:
            raise InvalidValue("no queue")
        first, *others = words
        return self.make(first).pop(options["COUNT"], options["BLOCK"], *others)

    def check(self, step: Step) -> None:
        """Compare our answer with the recorded one."""
        if step.reply.startswith("(error)"):
            with pytest.raises(error_like(step.reply)):
                self.answer(step.request)
            return
        ours = self.answer(step.request)
        recorded = None if step.reply == "(nil)" else json.loads(step.reply)
        assert self.plain(ours) == self.translated(recorded, self.plain(ours)), step

    def plain(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self.plain(part) for part in reply]
        return reply.decode() if isinstance(reply, bytes) else reply

    def translated(self, recorded: Any, ours: Any) -> Any:
        """Return what was recorded with our ids and times in it."""
        if isinstance(recorded, list):
            if len(recorded) == 5 and isinstance(recorded[2], int) and len(ours) == 5:
                assert abs(time.time() * 1000 - ours[2]) < 60_000 and 0 <= ours[3] < 60_000
                recorded = [*recorded[:2], *ours[2:4], recorded[4]]
            return [
                self.translated(part, ours[at] if isinstance(ours, list) and at < len(ours) else None)
                for at, part in enumerate(recorded)
            ]
        if isinstance(recorded, str) and ID.fullmatch(recorded):
            if recorded not in self.ids and isinstance(ours, str) and ours not in self.ids.values():
                self.ids[recorded] = ours
            return self.ids.get(recorded, recorded)
        return recorded


def number(word: str) -> Any:
    """Return a number, or the word itself: our queues have to refuse it."""
    try:
        return int(word)
    except ValueError:
        return word


def error_like(reply: str) -> Any:
    """Return our error for one of the module's."""
    if "WRONGTYPE" in reply:
        return BrokenQueue
    if "EMPTYKEY" in reply:
        return QueueNotFound
    # A missing argument is Python's own TypeError.
    return (InvalidValue, TypeError, IndexError)


@pytest.fixture
def replay(make: MakeQueue, server: PrivateServer) -> Replay:
    return Replay(make, server)


def bodies(rows: Any) -> list[str]:
    """Return the last column of what was popped or recovered."""
    return [row[-1].decode() for row in rows]


def test_push_info_and_inspect_answer_as_the_module_does(replay: Replay):
    for step in steps("push, info, inspect"):
        if not step.request.startswith("TYPE"):  # there is no RELIABLEQ here: a queue is several ordinary keys
            replay.check(step)


def pop_section(replay: Replay) -> None:
    for step in steps("pop"):
        match step.request:
            case "RQ.POP COUNT abc q":  # the module takes both words for queues
                with pytest.raises(InvalidValue, match="count is 'abc'"):
                    replay.answer(step.request)
                replay.check(Step("RQ.POP q", step.reply))
            case "RQ.POP COUNT q":
                with pytest.raises(InvalidValue):
                    replay.answer(step.request)
            case "RQ.POP BLOCK 50 COUNT 5 q":
                pass  # our arguments have places and names: this cannot be said
            case _:
                replay.check(step)


def test_pop_answers_as_the_module_does(replay: Replay):
    for step in steps("push, info, inspect"):
        if step.request.startswith("RQ.PUSH"):
            replay.check(step)

    pop_section(replay)


def test_acknowledge_and_recover_answer_as_the_module_does(replay: Replay):
    for step in steps("push, info, inspect"):
        if step.request.startswith("RQ.PUSH"):
            replay.check(step)
    pop_section(replay)

    for step in steps("acknowledge and recover"):
        if step.request == "50 ms pause":
            wait_until(lambda: all(row[3] >= 20 for row in replay.make("q").inspect(0, 10, True)))
        elif step.request == "RQ.RECOVER q 5 0":  # the module returns five of two
            assert bodies(replay.answer(step.request)) == ["c", "d"]
        elif step.request == "RQ.INSPECT q PENDING 0 10":
            assert [[row[1], row[4]] for row in replay.answer(step.request)] == [[b"c", 3], [b"d", 3]]
        else:
            replay.check(step)


def test_wrong_types_are_refused_as_the_module_does(replay: Replay, server: PrivateServer):
    for step in steps("wrong type"):
        match step.request:
            case "SET s 1":
                server.redis.set(FOREIGN_KEY, 1)
            case "RQ.PUSH q e":
                replay.answer(step.request)
            case "RQ.POP COUNT 5 q s":  # the module skips s; ours takes nothing from q either
                with pytest.raises(BrokenQueue):
                    replay.answer(step.request)
                assert bodies(replay.answer("RQ.POP q")) == ["e"]
            case _:
                replay.check(step)


def test_messages_survive_the_restart_that_empties_the_module(replay: Replay, server: PrivateServer):
    replay.answer("RQ.PUSH p a b c")
    replay.answer("RQ.POP p")
    before = replay.make("p").inspect(0, 5), replay.make("p").inspect(0, 5, True)

    server.restart()

    assert replay.answer("RQ.INFO p") == ["undelivered", 2, "delivered", 1]
    after = replay.make("p").inspect(0, 5), replay.make("p").inspect(0, 5, True)
    assert [row[:3] for rows in after for row in rows] == [row[:3] for rows in before for row in rows]
    assert bodies(replay.answer("RQ.POP COUNT 5 p")) == ["b", "c"]
    assert bodies(replay.answer("RQ.RECOVER p 5 0")) == ["a", "b", "c"]


def test_inspecting_an_empty_queue_from_anywhere_gives_nothing(replay: Replay):
    replay.answer("RQ.PUSH e 1")
    replay.answer("RQ.POP e")

    for start in (-2, -1, 0, 1, 100):
        assert replay.answer(f"RQ.INSPECT e {start} 5") == []


# -- Blocking ---------------------------------------------------------------------------------------------------------


class Waiters:
    """Clients that pop in threads of their own, each waiting before the next one starts."""

    def __init__(self, server: PrivateServer) -> None:
        self.server = server
        self.replies: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def start(self, name: str, pop: Callable[[], Any]) -> None:
        def wait() -> None:
            self.replies[name] = pop()

        waiting = len(self.threads) + 1
        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        wait_until(lambda: self.server.redis.info("clients")["blocked_clients"] == waiting)

    def finish(self) -> dict[str, Any]:
        for thread in self.threads:
            thread.join(timeout=90)
        return self.replies


def test_waiters_are_served_in_the_order_in_which_they_came(make: MakeQueue, server: PrivateServer):
    waiters = Waiters(server)
    k1, k2, k3, k4 = (make(name) for name in ("k1", "k2", "k3", "k4"))
    waiters.start("A", lambda: k1.pop(10, 60_000, "k2"))
    waiters.start("B", lambda: k2.pop(1, 60_000, "k1"))
    waiters.start("D", lambda: k4.pop(1, -1))
    started_at = time.monotonic()
    assert k3.pop(10, 1000) is None and time.monotonic() - started_at >= 1

    k2.push("x1", "x2")
    wait_until(lambda: "A" in waiters.replies)
    k1.push("y1")
    server.redis.set("rsmq::reliable:k4:wake", "str")
    server.redis.delete("rsmq::reliable:k4:wake")
    k4.push("z")
    replies = waiters.finish()

    assert bodies(replies["A"]) == ["x1", "x2"]
    assert [(row[0], row[2]) for row in replies["B"]] == [("k1", b"y1")]
    assert bodies(replies["D"]) == ["z"]
    assert k1.info() == k2.info()[:1] + [0, "delivered", 1]


def test_two_waiters_and_a_push_of_two_get_one_each(jobs: ReliableQueue, server: PrivateServer):
    waiters = Waiters(server)
    waiters.start("older", lambda: jobs.pop(1, 60_000))
    waiters.start("younger", lambda: jobs.pop(1, 60_000))

    jobs.push("first", "second")

    assert {name: bodies(rows) for name, rows in waiters.finish().items()} == {
        "older": ["first"],
        "younger": ["second"],
    }
