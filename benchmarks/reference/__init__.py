"""The yardstick: a client written in C that sends, receives and deletes with the shortest scripts RSMQ's format allows.

It has no tasks, no fence, no checks and no damaged messages to look out for, so no worker can reach it. Rates of
everything else are divided by its rates of the same minute, which takes most of the machine's mood out of the ratio.
"""

from __future__ import annotations

import subprocess
import time
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
BODY = '{"task":"benchmarks.ours.tasks.noop","id":"0123456789abcdefghijkl","args":[0.0],"kwargs":{}}'
KEEP_FOR_S = 60.0

Rates = dict[str, float]


class Reference:
    """Rates of the C client in messages a second: `L_send`, `L_cycle` in batches of 100, `L_send1` one at a time."""

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
        with one_core(), Server() as server:
            return {
                "L_send": run(server, "send", count=self._messages),
                "L_cycle": run(server, "cycle", count=self._messages),
                "L_send1": _one_by_one(server, count=self._messages // 20),
            }


def _one_by_one(server: Server, *, count: int) -> float:
    # In parts, as everybody else's sends one by one.
    return median(run(server, "send", count=count, batch=1) for _ in range(PARTS))


def run(server: Server, mode: str, *, count: int, batch: int = BATCH, queue: str = "rsmq:bench") -> float:
    """Let the client `send` or `cycle` (receive and delete) so many messages; return how many a second."""
    digests = [str(server.redis.script_load(_script(name))) for name in ("send", "receive", "delete")]
    command = [str(program()), str(server.port), mode, str(batch), str(count), queue, *digests, BODY]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the reference client failed: {done.stderr.strip()}")
    messages, seconds = done.stdout.split()
    return int(messages) / float(seconds)


def program() -> Path:
    """Return the compiled client. Raises NoCompiler."""
    return compiled(HERE / "client.c", name="client-{}")


@cache
def _script(name: str) -> str:
    return (HERE / f"{name}.lua").read_text()
