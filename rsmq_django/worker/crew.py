"""What the outside world sees of a supervisor's processes, and may order them to do: see core/processes.py."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Sequence

from .. import __version__
from ..core import Client, RsmqError
from ..core.processes import ProcessRecord, Running, describe
from .children import Child
from .holds import BEAT_EVERY_S
from .memory import resident_bytes

logger = logging.getLogger(__name__)


class Crew:
    """The processes of one supervisor."""

    def __init__(self, children: Iterable[Child], *, shutdown_timeout_s: float) -> None:
        #: The supervisor's own list, which changes.
        self._children = children
        self._shutdown_timeout_s = shutdown_timeout_s
        self._host = socket.gethostname()
        #: The last order of each server to each worker that was carried out.
        self._obeyed: dict[tuple[Client, str], str] = {}

    def present(self, client: Client, queues: Sequence[str], reliable: Sequence[str] = ()) -> float:
        """Tell one server about all processes and the queues there, and carry out what it orders.

        Returns when to do that again.
        """
        children = list(self._children)
        names = tuple(queues), tuple(reliable)
        calls = [describe(client.namespace, child.worker_id, self._record(child, *names)) for child in children]
        alive = {child.worker_id for child in children}
        self._obeyed = {key: order for key, order in self._obeyed.items() if key[1] in alive}
        for child, order in zip(children, client.run_many(calls), strict=True):
            if isinstance(order, RsmqError):
                raise order
            if order and order != self._obeyed.get((client, child.worker_id)):
                self._obeyed[client, child.worker_id] = order
                self._obey(child, order.partition(" ")[0])
        return BEAT_EVERY_S

    def _record(self, child: Child, queues: tuple[str, ...], reliable: tuple[str, ...]) -> ProcessRecord:
        now = time.monotonic()
        since = sorted(child.board.running_since().items(), key=lambda item: item[1])
        return ProcessRecord(
            host=self._host,
            pid=child.pid,
            version=__version__,
            age_ms=_ms(now - child.started_at),
            memory_bytes=resident_bytes(child.pid),
            state="stopping" if child.asked_to_stop else "quiet" if child.board.is_quiet else "working",
            queues=queues,
            reliable=reliable,
            running=tuple(Running(message_id, _ms(now - began_at)) for message_id, began_at in since),
        )

    def _obey(self, child: Child, word: str) -> None:
        logger.info("process %d (%s) is ordered to %s", child.pid, child.worker_id, word)
        if word in ("quiet", "resume"):
            child.board.tell_quiet(word == "quiet")
        elif word in ("restart", "stop"):
            child.is_dismissed = child.is_dismissed or word == "stop"
            if not child.asked_to_stop:
                child.ask_to_stop(by=time.monotonic() + self._shutdown_timeout_s)
        else:
            logger.warning("%r is no order that this version knows; nothing was done", word)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
