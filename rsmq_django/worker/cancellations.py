"""Which of the messages that a worker holds were cancelled: asked when something was, or when one is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..core import Client, RsmqError
from ..core.call import Call
from ..core.keys import cancelled_key
from ..core.limits import MAX_BATCH
from .delivery import Delivery
from .outage import Outage


class Cancellations:
    """Those on one connection. Only the worker's main thread uses them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cancelled: set[str] = set()
        #: Messages of which somebody should ask whether they were cancelled.
        self._suspects: list[str] = []
        self._suspects_all = False
        self._outage = Outage(f"cancellations on {client.connection!r}", server=client.connection)

    def suspect(self, deliveries: Iterable[Delivery]) -> None:
        """Ask about messages that are gone although they are worked on here."""
        self._suspects += [delivery.message.id for delivery in deliveries]

    def suspect_all(self) -> None:
        """Ask about everything that is held: something was cancelled, or nobody listened for a while."""
        self._suspects_all = True

    @property
    def has_suspects(self) -> bool:
        """Say whether there is something to ask."""
        return self._suspects_all or bool(self._suspects)

    def question(self, held: Callable[[], Sequence[Delivery]]) -> tuple[list[str], Call[list[bool]]] | None:
        """Return what to ask and the call that does; None when nothing is suspicious."""
        if self._suspects_all:
            self._suspects_all = False
            self._suspects = [delivery.message.id for delivery in held()]
        ids, self._suspects = self._suspects[:MAX_BATCH], self._suspects[MAX_BATCH:]
        if not ids:
            return None
        key = cancelled_key(self._client.namespace)
        return ids, Call("worker/read_cancelled", (key,), tuple(ids), _read_flags, repeatable=True)

    def answered(self, ids: Sequence[str], flags: Sequence[bool]) -> None:
        """Take over an answer."""
        self._outage.over()
        self._cancelled.update(each for each, is_cancelled in zip(ids, flags, strict=True) if is_cancelled)

    def ask_again(self, ids: Iterable[str]) -> None:
        """Keep what could not be asked."""
        self._suspects += ids

    def refused(self, error: RsmqError) -> None:
        """Note that the key with the cancellations is damaged: whoever cancels hears of it, too."""
        self._outage.note(error)

    def take(self, held: Callable[[], Sequence[Delivery]]) -> list[Delivery]:
        """Return those that were cancelled since this was last asked, marked as such."""
        if not self._cancelled:
            return []
        ids, self._cancelled = self._cancelled, set()
        cancelled = [each for each in held() if each.message.id in ids and not each.cancelled]
        for delivery in cancelled:
            delivery.cancelled = delivery.lease_lost = True
        return cancelled


def _read_flags(reply: list[int]) -> list[bool]:
    return [number == 1 for number in reply]
