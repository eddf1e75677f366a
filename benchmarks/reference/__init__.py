"""The yardstick: a client written in C that sends, receives and deletes with the shortest scripts RSMQ's format allows.

It has no tasks, no fence, no checks and no damaged messages to look out for, so no worker can reach it. Rates of
everything else are divided by its rates of the same minute, which takes most of the machine's mood out of the ratio.
"""

from __future__ import annotations

import resource
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from ..act import PARTS
from ..compiling import compiled
from ..processes import one_core
from ..server import Server

HERE = Path(__file__).parent
BATCH = 100
#: What a task of ours looks like on the wire, so that both move the same bytes.
BODY = (
    '{"task":"benchmarks.ours.tasks.noop","id":"0123456789abcdefghijkl","args":[],'
    '"kwargs":{"sent_at":0.0,"order":4711,"currency":"EUR"}}'
)
KEEP_FOR_S = 60.0

Rates = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run of the client took: messages a second, and microseconds of processor time a message."""

    rate: float
    client_us: float
    server_us: float


class Reference:
    """The C client's rates in messages a second: `L_send`, `L_cycle` in batches of 100, `L_send1` one at a time.

    And microseconds of processor time a message: `send1_client_us`, and for the server `send_server_us`,
    `cycle_server_us`, `send1_server_us`, `cycle1_server_us`.
    """

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._rates: Rates = {}
        self._measured_at = -KEEP_FOR_S

    def rates(self) -> Rates:
        """Return rates that are at most a minute old; measure them when those at hand are older."""
        if time.monotonic() - self._measured_at >= KEEP_FOR_S:
            self._rates = self._measure()
            self._measured_at = time.monotonic()
        return self._rates

    def _measure(self) -> Rates:
        few = self._messages // 20
        with one_core(), Server() as server:  # as all senders are measured
            send = run(server, "send", count=self._messages)
            # In parts, as the sends of all candidates.
            send1 = [run(server, "send", count=few, batch=1) for _ in range(PARTS)]
            cycle1 = run(server, "cycle", count=few, batch=1)
        with Server() as server:  # on all cores, as all workers are
            run(server, "send", count=self._messages)
            cycle = run(server, "cycle", count=self._messages)
        return {
            "L_send": send.rate,
            "L_cycle": cycle.rate,
            "L_send1": median(cost.rate for cost in send1),
            "send1_client_us": median(cost.client_us for cost in send1),
            "send_server_us": send.server_us,
            "cycle_server_us": cycle.server_us,
            "send1_server_us": median(cost.server_us for cost in send1),
            "cycle1_server_us": cycle1.server_us,
        }


def run(server: Server, mode: str, *, count: int, batch: int = BATCH, queue: str = "rsmq:bench") -> Cost:
    """Let the client `send` or `cycle` (receive and delete) so many messages; return what that took."""
    digests = [str(server.redis.script_load(_script(name))) for name in ("send", "receive", "delete")]
    command = [str(program()), str(server.port), mode, str(batch), str(count), queue, *digests, BODY]
    server_s, client_s = server.cpu_s(), _children_cpu_s()
    done = subprocess.run(command, capture_output=True, text=True)
    server_s, client_s = server.cpu_s() - server_s, _children_cpu_s() - client_s
    if done.returncode != 0:
        raise RuntimeError(f"the reference client failed: {done.stderr.strip()}")
    messages, seconds = map(float, done.stdout.split())
    return Cost(messages / seconds, client_s / messages * 1e6, server_s / messages * 1e6)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def program() -> Path:
    """Return the compiled client. Raises NoCompiler."""
    return compiled(HERE / "client.c", name="client-{}")


@cache
def _script(name: str) -> str:
    return (HERE / f"{name}.lua").read_text()
