"""Operations on messages: the permission that each needs, its scripts, and its outcomes.

Every operation takes messages as they were shown, and skips messages that have been received since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core import moves
from ..core.browse import NO_BODY, StoredMessage, pick
from ..core.errors import InvalidName, InvalidValue
from ..core.keys import checked_name
from ..core.limits import MAX_BATCH
from ..core.moves import MAX_SLICE, MAX_SLICE_BYTES, Verdict
from ..core.portions import portions
from ..live.messages import DEAD, DELAYED, IN_FLIGHT, READY
from ..live.places import Place, place_of
from .formats import as_number

#: Why messages stayed where they were, in the order in which it is told.
STAYED: Mapping[str, Callable[[int], str]] = {
    "moved_on": lambda n: ngettext("%s has changed meanwhile", "%s have changed meanwhile", n) % as_number(n),
    "gone": lambda n: ngettext("%s no longer exists", "%s no longer exist", n) % as_number(n),
    "too_long": lambda n: ngettext("%s is too long for the target", "%s are too long for the target", n) % as_number(n),
    "duplicate": lambda n: (
        ngettext("%s already exists in the target", "%s already exist in the target", n) % as_number(n)
    ),
    "no_origin": lambda n: (
        ngettext("%s has no record of its original queue", "%s have no record of their original queue", n)
        % as_number(n)
    ),
}
WORDS = {
    Verdict.TAKEN: "moved_on",
    Verdict.MISSING: "gone",
    Verdict.TOO_LONG: "too_long",
    Verdict.DUPLICATE: "duplicate",
}


@dataclass
class Tally:
    """The outcomes of an operation so far."""

    done: int = 0
    stayed: dict[str, int] = field(default_factory=dict)
    #: The ids of the messages that were done.
    done_ids: list[bytes] = field(default_factory=list)

    @property
    def all(self) -> int:
        """Return how many messages it was about."""
        return self.done + sum(self.stayed.values())

    @property
    def is_clean(self) -> bool:
        """Return whether all of them were done."""
        return not self.stayed

    def stay(self, word: str, number: int = 1) -> None:
        """Note that messages stayed where they were."""
        if number:
            self.stayed[word] = self.stayed.get(word, 0) + number

    def note(self, messages: Iterable[StoredMessage], verdicts: Iterable[Verdict | str]) -> None:
        """Note the answers of a script; a text is the new id of a message that was sent again."""
        for message, verdict in zip(messages, verdicts, strict=True):
            if isinstance(verdict, str) or verdict is Verdict.DONE:
                self.done += 1
                self.done_ids.append(message.position.message_id)
            else:
                self.stay(WORDS[verdict])

    def sentence(self) -> str:
        """Return "3 of 5 done, 2 have changed meanwhile"."""
        parts = [_("%(done)s of %(all)s done") % {"done": as_number(self.done), "all": as_number(self.all)}]
        parts += [STAYED[word](self.stayed[word]) for word in STAYED if word in self.stayed]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be done to messages."""

    name: str
    #: Permission of the app, without its label.
    codename: str
    label: Any
    #: What the history of the admin says.
    logged: Any
    carry_out: Callable[[Place, Sequence[StoredMessage], Mapping[str, Any], Tally], None]
    #: Parameters that a form asks for: "seconds", "target".
    asks: tuple[str, ...] = ()
    #: Whether it is asked once more before it is done.
    is_dangerous: bool = False
    #: The states in which the page of a message offers it.
    states: tuple[str, ...] = (READY, DELAYED, IN_FLIGHT, DEAD)

    @property
    def title(self) -> str:
        """Return the label without the sign that says that a question follows."""
        return str(self.label).rstrip("…")


def _delete(place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    tally.note(messages, place.client.run(moves.remove(place.client.namespace, place.name, messages)))


def _run_now(place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    tally.note(messages, place.client.run(moves.reschedule(place.client.namespace, place.name, messages, 0)))


def _delay(place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    seconds = params["seconds"]
    tally.note(messages, place.client.run(moves.reschedule(place.client.namespace, place.name, messages, seconds)))


def _move(place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    target = target_of(place, params["target"])
    tally.note(messages, place.client.run(moves.move(place.client.namespace, place.name, target, messages)))


def _redrive(place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally) -> None:
    by_target: dict[str, list[StoredMessage]] = {}
    for message in messages:
        target = target_of(place, params["target"]) if params.get("target") else origin_of(message)
        if target is None or target == place.name:
            tally.stay("no_origin")
        else:
            by_target.setdefault(target, []).append(message)
    for target, part in by_target.items():
        tally.note(part, place.client.run(moves.redrive(place.client.namespace, place.name, target, part)))


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "run_now",
            "move_message",
            gettext_lazy("Run now"),
            gettext_lazy("Made visible at once"),
            _run_now,
            states=(DELAYED, IN_FLIGHT),
        ),
        Operation(
            "delay",
            "move_message",
            gettext_lazy("Delay…"),
            gettext_lazy("Delayed by %(seconds)s s"),
            _delay,
            asks=("seconds",),
            states=(READY, DELAYED, IN_FLIGHT),
        ),
        Operation(
            "move",
            "move_message",
            gettext_lazy("Move to another queue…"),
            gettext_lazy("Moved to %(target)s"),
            _move,
            asks=("target",),
        ),
        Operation(
            "redrive",
            "redrive_message",
            gettext_lazy("Retry"),
            gettext_lazy("Retried"),
            _redrive,
            states=(DEAD,),
        ),
        Operation(
            "delete_selected",
            "delete_message",
            gettext_lazy("Delete…"),
            gettext_lazy("Deleted"),
            _delete,
            is_dangerous=True,
        ),
    )
}


def target_of(place: Place, key: str) -> str:
    """Return the name of the target queue. Raises InvalidValue for one of another server."""
    target = place_of(key)
    if target is None or target.alias != place.alias:
        raise InvalidValue(
            _("“%(key)s” is not on the connection “%(alias)s”: messages move within one server only.")
            % {"key": key, "alias": place.alias}
        )
    return checked_name(target.name)


def origin_of(message: StoredMessage) -> str | None:
    """Return the queue that a dead letter came from, if its record names one."""
    failure = message.failure()
    try:
        return checked_name(failure.queue) if failure else None
    except InvalidName:
        return None


def carry_out(
    operation: Operation, place: Place, messages: Sequence[StoredMessage], params: Mapping[str, Any], tally: Tally
) -> None:
    """Do it to messages of one queue, slice by slice."""
    for part in cut(messages):
        operation.carry_out(place, part, params, tally)


def as_seen(place: Place, receive_counts: Mapping[bytes, int | None], tally: Tally) -> list[StoredMessage]:
    """Read messages with the receive counts that the page showed; None means the current count.

    Scripts use the counts to detect messages that have changed since. Missing messages are counted in the tally.
    """
    found: list[StoredMessage] = []
    ids = list(receive_counts)
    for at in range(0, len(ids), MAX_BATCH):
        call = pick(place.client.namespace, place.name, ids[at : at + MAX_BATCH], body_bytes=NO_BODY)
        found += place.client.run(call).messages
    tally.stay("gone", len(ids) - len(found))
    return [_with_count(message, receive_counts[message.position.message_id]) for message in found]


def _with_count(message: StoredMessage, receive_count: int | None) -> StoredMessage:
    if receive_count is None:
        return message
    return replace(message, receive_count=receive_count)


def cut(messages: Sequence[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Cut messages into slices that one script may take."""
    return portions(messages, lambda message: message.size_bytes or 0, count=MAX_SLICE, size_bytes=MAX_SLICE_BYTES)
