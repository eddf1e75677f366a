"""Retry plans: send the dead letters of one failure again at a rate, so that they become due one after the other.

`send_part()` moves dead letters back to their queues at once, each due a step after the one before it. After that no
process is needed: workers receive a message when it is due. The plan keeps the failure record of each message, so that
messages that are not due can be made dead letters again (`return_part()`), and counts outcomes (`settle_part()`). Each
of these is one script: after a crash in between, no message is lost or duplicated, and any process can continue.

    {ns}::retry:{id}           hash   state ("sending", "sent", "cancelled"), source, failure, rate, counts, position
    {ns}::retry:{id}:open      zset   "id target" of its messages that have not ended -> due (ms)
    {ns}::retry:{id}:records   hash   id -> score and failure record of the earlier dead letter
    {ns}::retries:{queue}      zset   plan of the dead-letter queue -> time of creation (ms)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from ..errors import InvalidValue
from ..ids import random_suffixes
from ..keys import checked_name, queue_keys, result_key, retries_key, retry_keys
from ..limits import MAX_BATCH
from ..numbers import read_count, read_epoch_ms, read_finite, read_whole
from ..transport.call import Argument, Call
from ..transport.client import Client
from ..transport.portions import grouped
from .browse import START, Position, StoredMessage, read_failure
from .listing import digest
from .moves import REDRIVEN_RESULT_TTL_S, Verdict, redriven
from .transfers import by_target, cut

#: How long a plan is kept after its last message is due.
KEEP_S = 7 * 86_400
#: Maximum number of listed plans of a queue.
MOST_PLANS = 50
MAX_RATE = 1000.0
MIN_RATE = 0.001
#: Maximum number of messages that settle_part() and return_part() process.
PART = 200

State = Literal["sending", "sent", "cancelled"]
Fits = Callable[[StoredMessage], bool]


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """The state and progress of a plan."""

    id: str
    #: The server's time (ms).
    now_ms: float
    state: str
    source: str
    #: Fingerprint of the failure of its messages.
    failure: str
    #: Task and exception, for display.
    task: str
    error: str
    #: Messages a second.
    rate: float
    #: Maximum number of messages to send; None for all.
    limit: int | None
    created_ms: float
    #: Number of dead letters at its creation; later ones are not sent.
    to_look_at: int
    looked_at: int
    position: Position
    sent: int
    succeeded: int
    failed: int
    #: Messages that ended without a result: they were deleted, or their task keeps none.
    unknown: int
    returned: int
    #: Dead letters that were not sent, because their queue does not exist.
    missing: int
    #: Number of sent messages that have not ended; how many of them are not due.
    open: int
    later: int
    last_due_ms: float | None
    #: A message that failed again.
    failed_id: str
    #: The task of a probe.
    task_id: str

    @property
    def is_probe(self) -> bool:
        """Return whether the plan is a probe, which sends one message to find out its outcome."""
        return self.limit == 1

    @property
    def ended(self) -> int:
        """Return how many messages have ended."""
        return self.succeeded + self.failed + self.unknown

    @property
    def is_finished(self) -> bool:
        """Return whether the plan will not change any more."""
        return self.state != "sending" and self.open == 0

    @property
    def left_s(self) -> float:
        """Return the number of seconds until the last message is due."""
        return 0.0 if self.last_due_ms is None else max(0.0, (self.last_due_ms - self.now_ms) / 1000)


# -- Making and finding plans -----------------------------------------------------------------------------------------


def begin(
    client: Client,
    source: str,
    *,
    rate: float,
    to_look_at: int,
    failure: str = "",
    task: str = "",
    error: str = "",
    limit: int | None = None,
) -> str:
    """Store a new plan without sending messages, and return its id."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidValue(
            f"rate is {rate!r}; it must be a number of messages a second from {MIN_RATE} to {MAX_RATE:g}"
        )
    (plan_id,) = random_suffixes(1)
    words: list[Argument] = ["source", checked_name(source), "rate", repr(rate), "gap_ms", repr(1000 / rate)]
    words += ["failure", failure, "task", task.encode("utf-8", "replace"), "error", error.encode("utf-8", "replace")]
    words += ["to_look_at", to_look_at]
    if limit is not None:
        words += ["limit", limit]
    keys = (retry_keys(client.namespace, plan_id)[0], retries_key(client.namespace, source))
    lasts_s = math.ceil((to_look_at if limit is None else min(limit, to_look_at)) / rate)
    client.run(Call("queue/retry/begin", keys, (plan_id, KEEP_S + lasts_s, MOST_PLANS, *words), int))
    return plan_id


def read_plan(client: Client, plan_id: str) -> RetryPlan | None:
    """Return a plan; None when it does not exist any more."""
    keys = retry_keys(client.namespace, plan_id)[:2]
    return client.run(Call("queue/retry/read", keys, (), lambda reply: _read_plan(plan_id, reply), repeatable=True))


def plans_of(client: Client, source: str) -> list[RetryPlan]:
    """Return the plans of a dead-letter queue, the newest first."""
    key = retries_key(client.namespace, source)
    newest: Call[list[bytes]] = Call("ZREVRANGE", (key,), (0, MOST_PLANS - 1), list, repeatable=True)
    found = [read_plan(client, plan_id.decode()) for plan_id in client.run(newest)]
    return [plan for plan in found if plan is not None]


def _read_plan(plan_id: str, reply: Any) -> RetryPlan | None:
    if reply is None:
        return None
    now_ms, still_open, later, last, words = reply
    texts = [word.decode("utf-8", "replace") for word in words]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    more: dict[str, Any] = {name: fields.get(name, "") for name in _TEXTS}
    more |= {name: read_count(fields.get(name)) for name in _COUNTS}
    return RetryPlan(
        id=plan_id,
        now_ms=float(now_ms),
        open=still_open,
        later=later,
        last_due_ms=read_epoch_ms(last),
        rate=read_finite(fields.get("rate")) or 1.0,
        limit=read_whole(fields.get("limit")),
        created_ms=read_epoch_ms(fields.get("created_ms")) or 0.0,
        position=_position_of(fields),
        **more,
    )


def _position_of(fields: Mapping[str, str]) -> Position:
    """Return the position of the next dead letter to read; the start if the stored position is damaged."""
    try:
        return Position(bytes.fromhex(fields["score"]), bytes.fromhex(fields["message"]))
    except (KeyError, ValueError):
        return START


_TEXTS = ("state", "source", "failure", "task", "error", "failed_id", "task_id")
_COUNTS = ("to_look_at", "looked_at", "sent", "succeeded", "failed", "unknown", "returned", "missing")


def _note(client: Client, plan_id: str, expected: str, **fields: Argument) -> bool:
    words = [word for pair in fields.items() for word in pair]
    key = retry_keys(client.namespace, plan_id)[0]
    return client.run(Call("queue/retry/note", (key,), (expected, *words), bool, repeatable=True))


# -- Sending ----------------------------------------------------------------------------------------------------------


def send_part(client: Client, plan: RetryPlan, fits: Fits) -> bool:
    """Check up to a thousand dead letters and send the matching ones. Return whether dead letters are left."""
    left = plan.to_look_at - plan.looked_at
    page = client.run(digest(client.namespace, plan.source, after=plan.position, count=max(1, min(left, MAX_BATCH))))
    if page.end is None or left <= 0 or plan.state != "sending":
        _note(client, plan.id, "sending", state="sent")
        return False
    # Dead letters newer than the plan are left alone: they may have failed because of it.
    meant = [message for message in page.messages if message.visible_at_ms <= plan.created_ms and fits(message)]
    wanted = None if plan.limit is None else max(0, plan.limit - plan.sent)
    missing = _send(client, plan, meant[:wanted])
    looked_at = plan.looked_at + len(page.messages)
    is_enough = wanted is not None and len(meant) >= wanted
    state = "sent" if is_enough or looked_at >= plan.to_look_at else "sending"
    place: dict[str, Argument] = {"score": page.end.score.hex(), "message": page.end.message_id.hex()}
    if plan.is_probe and meant and (failure := meant[0].failure()) is not None:
        place["task_id"] = failure.task_id
    if missing:
        place["missing"] = plan.missing + missing
    return _note(client, plan.id, "sending", state=state, looked_at=looked_at, **place) and state == "sending"


def _send(client: Client, plan: RetryPlan, messages: Sequence[StoredMessage]) -> int:
    """Send dead letters of a plan, and return how many were not sent because their queue does not exist."""
    groups, homeless = by_target(plan.source, messages)
    missing = len(homeless)
    for target, group in groups.items():
        for part in cut(group):
            if client.run(_send_call(client.namespace, plan, target, part)) is None:
                missing += len(part)
    return missing


def _send_call(
    namespace: str, plan: RetryPlan, target: str, messages: Sequence[StoredMessage]
) -> Call[list[Verdict | str] | None]:
    keys, target_keys = queue_keys(namespace, plan.source), queue_keys(namespace, target)
    all_keys = [keys.messages, keys.settings, keys.failures, keys.releases]
    all_keys += [target_keys.messages, target_keys.settings, target_keys.releases, *retry_keys(namespace, plan.id)]
    records, words = redriven(namespace, messages)
    args = (target_keys.channel, target, REDRIVEN_RESULT_TTL_S, KEEP_S, *words)
    return Call("queue/retry/send", (*all_keys, *records), args, _read_verdicts, repeatable=True, subject=plan.source)


def _read_verdicts(reply: Any) -> list[Verdict | str] | None:
    if not isinstance(reply, list):  # -1: the target does not exist; its dead letters stay where they are
        return None
    return [item.decode("ascii") if isinstance(item, bytes) else Verdict(item) for item in reply]


def _record_key(namespace: str, failure_json: bytes) -> list[str]:
    failure = read_failure(failure_json)
    return [result_key(namespace, failure.task_id)] if failure is not None and failure.task_id else []


# -- Outcomes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedRetry:
    """A message of a plan that has not ended."""

    id: str
    target: str
    failure_json: bytes


def settle_part(client: Client, plan: RetryPlan, *, skip: int = 0) -> tuple[int, int]:
    """Record outcomes of up to PART messages that are due; return the numbers of checked and of ended messages."""
    entries = _part(client, plan, "due", skip)
    own, failures = retry_keys(client.namespace, plan.id), queue_keys(client.namespace, plan.source).failures
    ended = 0
    for target, group in grouped(entries, attrgetter("target")).items():
        keys = [*own, queue_keys(client.namespace, target).messages, failures]
        args: list[Argument] = [target]
        for entry in group:
            record = _record_key(client.namespace, entry.failure_json)
            keys += record
            args += (entry.id, len(record))
        ended += client.run(Call("queue/retry/settle", tuple(keys), tuple(args), int, repeatable=True))
    return len(entries), ended


def cancel(client: Client, plan_id: str) -> None:
    """Cancel a plan: it sends no more messages, and return_part() returns those that are not due."""
    _note(client, plan_id, "", state="cancelled")


def stop(client: Client, plan_id: str) -> None:
    """Stop a plan: it sends no more messages; sent messages stay."""
    _note(client, plan_id, "sending", state="sent")


def return_part(client: Client, plan: RetryPlan, *, skip: int = 0) -> tuple[int, int]:
    """Make up to PART messages that are not due dead letters again; return the numbers of checked and returned ones."""
    entries = _part(client, plan, "later", skip)
    dead = queue_keys(client.namespace, plan.source)
    own = (*retry_keys(client.namespace, plan.id), dead.messages, dead.settings, dead.failures, dead.releases)
    returned = 0
    for target, group in grouped(entries, attrgetter("target")).items():
        queue = queue_keys(client.namespace, target)
        keys = [*own, queue.messages, queue.settings, queue.releases]
        args: list[Argument] = [target]
        for entry in group:
            failure = read_failure(entry.failure_json)
            died_ms = "" if failure is None or failure.died_ms is None else f"{failure.died_ms:.0f}"
            record = _record_key(client.namespace, entry.failure_json)
            keys += record
            args += (entry.id, died_ms, len(record))
        returned += client.run(Call("queue/retry/return", tuple(keys), tuple(args), int, subject=plan.source))
    return len(entries), returned


def _part(client: Client, plan: RetryPlan, which: str, skip: int) -> list[PlannedRetry]:
    keys = retry_keys(client.namespace, plan.id)[1:]
    call: Call[list[PlannedRetry]] = Call("queue/retry/part", keys, (which, skip, PART), _read_entries, repeatable=True)
    return client.run(call)


def _read_entries(reply: list[bytes]) -> list[PlannedRetry]:
    return [_entry(entry, kept) for entry, kept in zip(reply[::2], reply[1::2], strict=True)]


def _entry(entry: bytes, kept: bytes) -> PlannedRetry:
    message_id, _, target = entry.decode().partition(" ")
    return PlannedRetry(message_id, target, kept.partition(b" ")[2])


# -- In a loop --------------------------------------------------------------------------------------------------------


def go_on(client: Client, plan_id: str, fits: Fits) -> Iterator[RetryPlan]:
    """Send the rest of a plan, part by part; yield the plan after each part."""
    while (plan := read_plan(client, plan_id)) is not None and plan.state == "sending":
        send_part(client, plan, fits)
        if (plan := read_plan(client, plan_id)) is not None:
            yield plan


def each_part(part: Callable[..., tuple[int, int]], client: Client, plan: RetryPlan) -> Iterator[int]:
    """Repeat settle_part() or return_part() until all messages are checked; yield each number of changed messages."""
    skip = 0
    while True:
        looked_at, done = part(client, plan, skip=skip)
        yield done
        skip += looked_at - done
        if looked_at < PART:
            return
