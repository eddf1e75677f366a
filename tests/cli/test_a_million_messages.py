"""A queue of a million messages: every command gets through it, and no script holds up the server's other clients.

Bounded is checked by what each script call takes and returns, and by the server's slow log with a threshold that only
a script which walks the whole queue would reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.moves import MAX_SLICE
from tests.cli.conftest import Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]

pytestmark = [pytest.mark.slow, pytest.mark.long]

MILLION = 1_000_000
SLOW_US = 500_000

FILL = """
local first, step = tonumber(ARGV[1]), 500
for start = first, first + 9999, step do
  local scores, fields = {}, {}
  for n = start, start + step - 1 do
    local id = "hocgr64ivo" .. string.format("%022d", n)
    scores[#scores + 1] = ARGV[2] + n % 1000
    scores[#scores + 1] = id
    for field, value in pairs({[id] = "message " .. n, [id .. ":rc"] = "1"}) do
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  redis.call("ZADD", KEYS[1], unpack(scores))
  redis.call("HSET", KEYS[2], unpack(fields))
end
"""


@pytest.fixture
def big(server: PrivateServer) -> Iterator[Queue]:
    """A queue of a million messages, each received once, and a log of what takes long from here on."""
    queue = Queue("big", Client(Connection(server.url, timeout_s=30)))
    queue.create()
    fill = server.redis.register_script(FILL)
    now_ms = server.redis.time()[0] * 1000
    for first in range(0, MILLION, 10_000):
        fill(keys=["rsmq:big", "rsmq:big:Q"], args=[first, now_ms - 5000])
    server.redis.config_set("slowlog-log-slower-than", SLOW_US)
    server.redis.slowlog_reset()
    yield queue
    server.redis.config_set("slowlog-log-slower-than", 10_000)
    server.redis.unlink("rsmq:big", "rsmq:big:Q", "rsmq:other", "rsmq:other:Q")


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many words each exchange of the command line sends and gets."""
    noted: list[int] = []
    exchange = Connection.exchange

    def noting(self: Connection, commands: Any) -> Any:
        replies = exchange(self, commands)
        noted.append(max(len(commands[0]), len(replies[0]) if isinstance(replies[0], list) else 1))
        return replies

    monkeypatch.setattr(Connection, "exchange", noting)
    return noted


def test_every_command_gets_through_a_million_messages_in_small_steps(
    rsmqctl: Run, big: Queue, server: PrivateServer, sizes: list[int], client: Client
):
    other = Queue("other", client)
    other.create()

    assert rsmqctl("--json", "queue", "stats", "-n", "big").json["ready"] == MILLION
    assert rsmqctl("message", "count", "-n", "big").output == f"{MILLION}\n"
    assert len(rsmqctl("message", "peek", "-n", "big", "--count", "5").json_lines) == 5
    assert rsmqctl("message", "list", "-n", "big", "--all").output.count("\n") == MILLION + 1
    assert rsmqctl("message", "list", "-n", "big", "--state", "in-flight").output == ""
    moved = rsmqctl("message", "move", "-n", "big", "--to", "other", "--limit", "50000")
    assert moved.output == "moved 50000 messages from big: 50000 to other\n"
    redriven = rsmqctl("message", "redrive", "-n", "other", "--to", "big")
    assert redriven.output == "redriven 50000 messages from other: 50000 to big\n"
    assert big.attributes().messages == MILLION
    server.redis.zadd("rsmq:big", {"p" * 32: 1})
    assert "big: phantoms: 1 changed" in rsmqctl("queue", "repair", "-n", "big", "--yes").output
    assert rsmqctl("queue", "purge", "-n", "big", "--yes").output == f"removed {MILLION} messages from big\n"
    assert rsmqctl("queue", "delete", "-n", "big").exit_code == 0

    assert max(sizes) <= 1 + 7 * 1000, "a page has at most a thousand messages of seven values"
    assert len(sizes) > MILLION / 1000 + 2 * 50_000 / MAX_SLICE
    slow = [(entry["duration"], entry["command"][:80]) for entry in server.redis.slowlog_get(100)]
    assert slow == []
