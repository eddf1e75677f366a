"""A queue of a million messages: every command gets through it, and no script holds up the server's other clients.

Bounded is checked by what each script call takes and returns, and by how long the server computes for it: not for much
longer than for writing ten thousand messages, which a script that walks the whole queue would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.queue.moves import MAX_SLICE
from tests.cli.conftest import Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]

pytestmark = [pytest.mark.slow, pytest.mark.long]

MILLION = 1_000_000
#: What the commands take is an eighth of a fill; a walk through the whole queue would be several.
MOST_FILLS = 1

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


class Effort:
    """How long the server computes, whatever else the machine does."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self.of_a_fill_s = 0.0
        self.most_s = 0.0

    def now_s(self) -> float:
        cpu = self._server.redis.info("cpu")
        return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


@pytest.fixture
def effort(server: PrivateServer) -> Effort:
    return Effort(server)


@pytest.fixture
def big(server: PrivateServer, effort: Effort) -> Iterator[Queue]:
    """A queue of a million messages, each received once."""
    queue = Queue("big", Client(Connection(server.url, timeout_s=30)))
    queue.create()
    fill = server.redis.register_script(FILL)
    now_ms = server.redis.time()[0] * 1000
    for first in range(0, MILLION, 10_000):
        before_s = effort.now_s()
        fill(keys=["rsmq:big", "rsmq:big:Q"], args=[first, now_ms - 5000])
        effort.of_a_fill_s = max(effort.of_a_fill_s, effort.now_s() - before_s)
    yield queue
    server.redis.unlink("rsmq:big", "rsmq:big:Q", "rsmq:other", "rsmq:other:Q")


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch, effort: Effort) -> list[int]:
    """Note how many words each exchange of the command line sends and gets, and the longest effort."""
    noted: list[int] = []
    exchange = Connection.exchange

    def noting(self: Connection, commands: Any) -> Any:
        before_s = effort.now_s()
        replies = exchange(self, commands)
        effort.most_s = max(effort.most_s, effort.now_s() - before_s)
        noted.append(max(len(commands[0]), len(replies[0]) if isinstance(replies[0], list) else 1))
        return replies

    monkeypatch.setattr(Connection, "exchange", noting)
    return noted


def test_every_command_gets_through_a_million_messages_in_small_steps(
    rsmqctl: Run, big: Queue, server: PrivateServer, sizes: list[int], effort: Effort, client: Client
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
    assert effort.most_s < MOST_FILLS * effort.of_a_fill_s
