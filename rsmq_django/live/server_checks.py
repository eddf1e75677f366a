"""Whether the servers of the connections answer, for health checks of web processes.

A caller waits no longer than it allows, also without a network: a check runs on a thread of its own, at most
one for each connection and once a second, and all callers share what it finds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.core.signals import setting_changed
from django.dispatch import receiver

from ..core import Client
from ..core.errors import ConnectionFailed, OutcomeUnknown
from ..core.log_lines import get_logger
from ..queues import get_client

logger = get_logger(__name__)

#: A server is not checked again before this time has passed.
CHECK_EVERY_S = 1.0
#: Longest wait of the sockets of a check.
SOCKET_TIMEOUT_S = 1.0

Answer = Literal["ok", "unreachable", "refused"]


@dataclass(slots=True)
class _Check:
    began_at: float
    answer: Answer = "unreachable"
    has_ended: threading.Event = field(default_factory=threading.Event)


class ServerCheck:
    """The latest check of one connection. Safe to share."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._latest: _Check | None = None
        #: The client of the settings, and the one with a short timeout and sockets of its own.
        self._clients: tuple[Client, Client] | None = None
        self._was_ok = True

    def begin(self) -> _Check:
        """Return the check that is under way or recent enough; begin one if there is none."""
        with self._lock:
            latest, now = self._latest, time.monotonic()
            if latest is None or (latest.has_ended.is_set() and now - latest.began_at >= CHECK_EVERY_S):
                latest = self._latest = _Check(now)
                thread = threading.Thread(target=self._carry_out, args=(latest,), name="rsmq-health", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the limit of the system, or the interpreter ends
                    self._note(error)
                    latest.has_ended.set()
            return latest

    def _carry_out(self, check: _Check) -> None:
        error: object = None
        try:
            (reply,) = self._client().ask([("PING",)])
            if isinstance(reply, Exception):
                check.answer, error = "refused", reply
            else:
                check.answer = "ok"
        except (ConnectionFailed, OutcomeUnknown) as raised:
            check.answer, error = "unreachable", raised
        except Exception as raised:  # wrong settings, too: who asks gets an answer in any case
            check.answer, error = "refused", raised
        self._note(error)
        check.has_ended.set()

    def _note(self, error: object) -> None:
        """Log the error of a check: once, not at each of them."""
        if error is not None and self._was_ok:
            logger.warning("the server of connection %s does not answer a health check: %s", self._alias, error)
        self._was_ok = error is None

    def _client(self) -> Client:
        shared = get_client(self._alias)
        if self._clients is None or self._clients[0] is not shared:
            connection = shared.connection.with_timeout(min(shared.connection.timeout_s, SOCKET_TIMEOUT_S))
            self._clients = shared, Client(connection, namespace=shared.namespace)
        return self._clients[1]


_checks: dict[str, ServerCheck] = {}
# The thread of a check that is under way does not exist in a forked process, so the check would never end.
os.register_at_fork(after_in_child=_checks.clear)


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    if setting == "RSMQ":
        _checks.clear()


def check_servers(aliases: Sequence[str], *, within_s: float) -> dict[str, Answer]:
    """Return what the servers of these connections answer, after `within_s` seconds at most.

    "ok", "unreachable" (also: no answer in time), or "refused": it answers with an error, or the settings are wrong.
    """
    ends_at = time.monotonic() + within_s
    begun = {alias: _checks.setdefault(alias, ServerCheck(alias)).begin() for alias in aliases}
    for check in begun.values():
        check.has_ended.wait(max(0.0, ends_at - time.monotonic()))
    return {alias: check.answer if check.has_ended.is_set() else "unreachable" for alias, check in begun.items()}
