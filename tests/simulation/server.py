"""A real server that sees simulated time: scripts read their clock from a key, which is set before each exchange."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hiredis
import redis

from rsmq_django.core.transport import call as calls
from rsmq_django.core.transport.packing import packed
from rsmq_django.embedded.binary import find_server
from tests.scripts import FILES
from tests.simulation.books import State
from tests.support import wait_until

CLOCK_KEY = "simulated-clock"
EXPIRIES_KEY = "simulated-expiries"
#: The queue and its priorities, the highest first.
QUEUE_KEYS = (b"rsmq:default-p10", b"rsmq:default", b"rsmq:default-m10")
Words = list[bytes]

#: The words that scripts read from the server's clock, made of the simulated time.
_TIME = f"""local us = tonumber(redis.call("GET", "{CLOCK_KEY}"))
local time = {{string.format("%.0f", (us - us % 1000000) / 1000000), string.format("%.0f", us % 1000000)}}"""
#: Put before each script. Keys expire by the simulated clock: the server stores that time with the key, but as one of
#: years later, and a list of them tells where to look.
_EXPIRING = f"""local redis = (function(real)
  local later_ms = 1e12
  local function now_ms() return math.floor(real.call("GET", "{CLOCK_KEY}") / 1000) end
  local function expire(key, ms)
    local at_ms = now_ms() + ms
    local reply = real.call("PEXPIREAT", key, string.format("%.0f", at_ms + later_ms))
    if reply == 1 then real.call("ZADD", "{EXPIRIES_KEY}", at_ms, key) end
    return reply
  end
  local function expiring(run)
    return function(command, ...)
      local key, value, unit, time = ...
      if command == "EXPIRE" then return expire(key, 1000 * value) end
      if command == "PEXPIRE" then return expire(key, 1 * value) end
      if command == "SET" and (unit == "PX" or unit == "EX") then
        local reply = run(command, key, value)
        expire(key, unit == "EX" and 1000 * time or 1 * time)
        return reply
      end
      if command == "PTTL" then
        local at_ms = run("PEXPIRETIME", key)
        return at_ms < 0 and at_ms or at_ms - later_ms - now_ms()
      end
      return run(command, ...)
    end
  end
  return setmetatable({{call = expiring(real.call), pcall = expiring(real.pcall)}}, {{__index = real}})
end)(redis)
"""
_EXPIRE = b"""local now_ms = math.floor(redis.call("GET", KEYS[1]) / 1000)
for _, key in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now_ms)) do
  local at_ms = redis.call("PEXPIRETIME", key)
  if at_ms > 0 and at_ms <= now_ms + 1e12 then redis.call("DEL", key) end
  redis.call("ZREM", KEYS[2], key)
end"""
_STATES = b"""local found, n = {}, 0
for rank, queue in ipairs(KEYS) do
  local scores = redis.call("ZRANGE", queue, 0, -1, "WITHSCORES")
  for at = 1, #scores, 2 do
    found[n + 1], found[n + 2], found[n + 3], n = scores[at], scores[at + 1], rank, n + 4
    found[n] = redis.call("HGET", queue .. ":Q", scores[at] .. ":rc") or "0"
  end
end
return found"""
#: Collections are stored in the order in which they were filled, also large ones: no hash seed of the server matters.
_IN_ORDER = [
    word
    for kind in ("hash", "set", "zset")
    for word in (f"--{kind}-max-listpack-entries", "100000", f"--{kind}-max-listpack-value", "1000000")
]
_read_lua: Callable[[str], str] = calls._lua


def in_simulated_time(name: str) -> str:
    """Return a Lua file that knows the simulated time."""
    text = _read_lua(name)
    if name == "parts/clock":
        text, count = re.subn(r'^local time = redis\.call\("TIME"\)$', lambda _: _TIME, text, flags=re.MULTILINE)
        assert count == 1, "the scripts read the time in another way now"
    return text if "parts/" in name else _EXPIRING + text


class Server:
    """The server's process, one socket for commands, and one for what is published."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="rsmq-sim-"))
        path = self._directory / "s"
        words = [find_server().path, "--port", "0", "--unixsocket", str(path), "--dir", str(self._directory)]
        words += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", *_IN_ORDER]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        # It ends with this process, however that ends.
        watch = ["sh", "-c", f"read _; kill -9 {self._process.pid} 2>/dev/null"]
        self._watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
        wait_until(lambda: _answers(path))
        self._commands, self._published = Wire(path), Wire(path)
        scripts = {name: calls.load_script(name) for name in FILES if "parts/" not in name}
        self._names = {script.sha1.encode(): name for name, script in scripts.items()}
        #: Digests of scripts that publish something.
        self._publish = {script.sha1.encode() for script in scripts.values() if b'"PUBLISH"' in script.source}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._watcher.communicate()  # before wait(): as long as nobody collects the server, its pid is its own
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def begin(self) -> None:
        """Be empty, as at its start."""
        self.run("FLUSHALL")
        self.forget_scripts()
        self.channels = set[bytes]()
        self._listen("UNSUBSCRIBE")

    def run(self, *words: str | int | bytes) -> Any:
        """Return the reply to one command."""
        (reply,) = self._commands.exchange(packed([words]), 1)
        return reply

    def forget_scripts(self) -> None:
        """Lose all scripts, as a server does that was started anew."""
        self.run("SCRIPT", "FLUSH")
        self._states, self._expire = (self.run("SCRIPT", "LOAD", script) for script in (_STATES, _EXPIRE))

    def name_of(self, command: Words) -> str:
        """Return the name of the script of a command, or the command."""
        word = command[0].decode()
        return self._names.get(command[1], word) if word == "EVALSHA" else word

    def execute(self, commands: Sequence[Words], now_us: int) -> tuple[list[Any], dict[str, State]]:
        """Carry out commands at a time; return the replies and the messages of the queues."""
        asked = [(b"GET", CLOCK_KEY) if command[0] == b"TIME" else tuple(command) for command in commands]
        before = [(b"SET", CLOCK_KEY, now_us), (b"EVALSHA", self._expire, 2, CLOCK_KEY, EXPIRIES_KEY)]
        all_commands = [*before, *asked, (b"EVALSHA", self._states, len(QUEUE_KEYS), *QUEUE_KEYS)]
        request = b"".join(map(hiredis.pack_command, all_commands))
        _, _, *replies, found = self._commands.exchange(request, len(commands) + 3)
        for at, command in enumerate(commands):
            if command[0] == b"TIME":
                replies[at] = [b"%d" % (now_us // 1_000_000), b"%d" % (now_us % 1_000_000)]
        states = {
            found[at].decode("latin-1"): State(float(found[at + 1]), int(found[at + 3]), found[at + 2])
            for at in range(0, len(found), 4)
        }
        return replies, states

    def body(self, message_id: str) -> bytes:
        """Return the body of a message in one of the queues."""
        bodies = (self.run("HGET", key + b":Q", message_id) for key in QUEUE_KEYS)
        return next(body for body in bodies if body is not None)

    def count(self) -> int:
        """Return how many messages are in the queues."""
        return sum(self.run("ZCARD", key) for key in QUEUE_KEYS)

    def published(self, commands: Sequence[Words]) -> list[tuple[bytes, bytes]]:
        """Return what these commands have published: channels and texts."""
        if not self.channels or not any(
            command[0] in (b"PUBLISH", b"EVAL") or (command[0] == b"EVALSHA" and command[1] in self._publish)
            for command in commands
        ):
            return []
        return [(push[1], push[2]) for push in self._listen("PING") if push[0] == b"message"]

    def listen(self, channels: set[bytes]) -> None:
        """Subscribe to these channels and no others, so that scripts learn whether a process listens."""
        if gone := sorted(self.channels - channels):
            self._listen("UNSUBSCRIBE", *gone)
        if new := sorted(channels - self.channels):
            self._listen("SUBSCRIBE", *new)
        self.channels = set(channels)

    def _listen(self, *words: str | bytes) -> list[Any]:
        """Send a command on the socket of what is published; return what came before its reply."""
        found = list[Any]()
        self._published.send(packed([words, ("PING",)]) if words[0] != "PING" else packed([words]))
        while True:
            push = self._published.read()
            if push in ([b"pong", b""], b"PONG", "PONG"):
                return found
            found.append(push)


class Wire:
    """A socket to the server."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        parse_error: Any = redis.connection.DefaultParser(65536).parse_error
        self._reader = hiredis.Reader(
            replyError=parse_error, protocolError=redis.exceptions.InvalidResponse, notEnoughData=Ellipsis
        )

    def exchange(self, request: bytes, count: int) -> list[Any]:
        self.send(request)
        return [self.read() for _ in range(count)]

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def read(self) -> Any:
        while (reply := self._reader.gets()) is Ellipsis:
            data = self._socket.recv(65536)
            assert data, "the server has closed a socket"
            self._reader.feed(data)
        return reply


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(path))
    except OSError:
        return False
    return True
