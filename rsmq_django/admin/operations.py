"""The operations on messages, and how their outcomes are told.

Every operation takes messages as they were shown, and skips messages that have been received since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.errors import InvalidValue
from ..core.keys import checked_name
from ..core.limits import MAX_BATCH
from ..core.queue import moves
from ..core.queue.browse import NO_BODY, StoredMessage, pick
from ..core.queue.transfers import (
    DUPLICATE,
    GONE,
    NO_ORIGIN,
    TAKEN,
    TOO_LONG,
    Tally,
    cut,
    move_messages,
    redrive_messages,
)
from ..live.messages import DEAD, DELAYED, IN_FLIGHT, READY
from ..live.places import QueueRef, place_of
from .components.operations import Operation, by_name
from .formats import as_number

#: Why messages stayed where they were, in the order in which it is told.
STAYED: Mapping[str, Callable[[int], str]] = {
    TAKEN: lambda n: ngettext("%s has changed meanwhile", "%s have changed meanwhile", n) % as_number(n),
    GONE: lambda n: ngettext("%s no longer exists", "%s no longer exist", n) % as_number(n),
    TOO_LONG: lambda n: ngettext("%s is too long for the target", "%s are too long for the target", n) % as_number(n),
    DUPLICATE: lambda n: (
        ngettext("%s already exists in the target", "%s already exist in the target", n) % as_number(n)
    ),
    NO_ORIGIN: lambda n: (
        ngettext("%s has no record of its original queue", "%s have no record of their original queue", n)
        % as_number(n)
    ),
}


def sentence_of(tally: Tally, chosen: int = 0) -> str:
    """Return "3 of 5 done, 2 have changed meanwhile"; of `chosen` messages, some may have no outcome after an error."""
    numbers = {"done": as_number(tally.moved.total()), "all": as_number(max(tally.all, chosen))}
    parts = [_("%(done)s of %(all)s done") % numbers]
    parts += [text(tally.stayed[word]) for word, text in STAYED.items() if tally.stayed[word]]
    return ", ".join(parts)


def _delete(place: QueueRef, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    for part in cut(messages):
        tally.note("", part, place.client.run(moves.remove(place.client.namespace, place.name, part)))


def _delay(place: QueueRef, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    seconds = params.get("seconds", 0)
    for part in cut(messages):
        call = moves.reschedule(place.client.namespace, place.name, part, seconds)
        tally.note(place.name, part, place.client.run(call))


def _move(place: QueueRef, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    move_messages(place.client, place.name, messages, tally, target=target_of(place, params["target"]))


def _redrive(place: QueueRef, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    target = target_of(place, params["target"]) if params.get("target") else None
    redrive_messages(place.client, place.name, messages, tally, target=target)


OPERATIONS = by_name(
    Operation(
        "run_now",
        "move_message",
        gettext_lazy("Run now"),
        _delay,
        gettext_lazy("Made visible at once"),
        states=(DELAYED, IN_FLIGHT),
    ),
    Operation(
        "delay",
        "move_message",
        gettext_lazy("Delay…"),
        _delay,
        gettext_lazy("Delayed by %(seconds)s s"),
        asks=("seconds",),
        states=(READY, DELAYED, IN_FLIGHT),
    ),
    Operation(
        "move",
        "move_message",
        gettext_lazy("Move to another queue…"),
        _move,
        gettext_lazy("Moved to %(target)s"),
        asks=("target",),
        states=(READY, DELAYED, IN_FLIGHT, DEAD),
    ),
    Operation("redrive", "redrive_message", gettext_lazy("Retry"), _redrive, gettext_lazy("Retried"), states=(DEAD,)),
    Operation(
        "delete_selected",
        "delete_message",
        gettext_lazy("Delete…"),
        _delete,
        gettext_lazy("Deleted"),
        is_dangerous=True,
        states=(READY, DELAYED, IN_FLIGHT, DEAD),
    ),
)


def target_of(place: QueueRef, key: str) -> str:
    """Return the name of the target queue. Raises InvalidValue for one of another server."""
    target = place_of(key)
    if target is None or target.alias != place.alias:
        raise InvalidValue(
            _("“%(key)s” is not on the connection “%(alias)s”: messages move within one server only.")
            % {"key": key, "alias": place.alias}
        )
    return checked_name(target.name)


def as_seen(place: QueueRef, receive_counts: Mapping[bytes, int | None], tally: Tally) -> list[StoredMessage]:
    """Read messages with the receive counts that the page showed; None means the current count.

    Scripts use the counts to detect messages that have changed since. Missing messages are counted in the tally.
    """
    found: list[StoredMessage] = []
    ids = list(receive_counts)
    for at in range(0, len(ids), MAX_BATCH):
        call = pick(place.client.namespace, place.name, ids[at : at + MAX_BATCH], body_bytes=NO_BODY)
        found += place.client.run(call).messages
    tally.leave(GONE, len(ids) - len(found))
    return [_with_count(message, receive_counts[message.position.message_id]) for message in found]


def _with_count(message: StoredMessage, receive_count: int | None) -> StoredMessage:
    if receive_count is None:
        return message
    return replace(message, receive_count=receive_count)
