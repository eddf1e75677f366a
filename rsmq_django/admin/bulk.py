"""Bulk operations: all messages of a queue that match a filter, processed in slices, one or more per request.

The state of a job is signed data in the page. Redis stores only the number of steps that were started, so that a page
that is submitted twice has no effect. Closing the page stops the job; finished slices are kept. Scripts check each
slice and skip messages that a worker has received meanwhile. Messages that came after the confirmation are not
included: sent, delivered for the first time, or dead since then.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from django.core import signing
from django.utils.translation import gettext as _

from ..core.errors import RsmqError
from ..core.limits import MAX_BATCH
from ..core.queue.browse import ALL, START, Position, StoredMessage
from ..core.queue.claims import claim_step
from ..core.queue.dead_letters import Filter
from ..core.queue.listing import SearchTerms, search
from ..core.queue.transfers import Tally
from ..core.stats.fingerprint import fingerprint_of
from ..live.messages import READY, RECEIVED
from ..live.places import QueueRef, place_of
from .components.operations import Operation
from .operations import OPERATIONS

SALT = "rsmq_django.admin.bulk"
#: A page that was left open for longer has to be opened anew.
MAX_AGE_S = 86_400


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A bulk operation, the filter of its messages, and its progress."""

    operation: str
    #: Key of the queue.
    queue: str
    user_id: int
    #: Server time when the operator was asked, in epoch milliseconds.
    asked_ms: int
    #: Messages to look at: as many as there were, or as have been looked at.
    to_look_at: int
    state: str = ""
    words: tuple[str, ...] = ()
    in_bodies: bool = False
    #: Fingerprint of a failure, and its task and error, which describe it.
    failure: str = ""
    name: str = ""
    #: Names with * and ?, of the task and the exception of dead letters.
    task: str = ""
    error: str = ""
    limit: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Tells this job from others, and its pages apart.
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    step: int = 0
    #: Server time of its first slice, in epoch milliseconds.
    began_ms: int = 0
    #: How far it got.
    looked_at: int = 0
    score: str = ""
    message_id: str = ""
    done: int = 0
    stayed: Mapping[str, int] = field(default_factory=dict)
    is_finished: bool = False
    log_entry: int | None = None

    @property
    def what(self) -> Operation:
        """Return the operation."""
        return OPERATIONS[self.operation]

    @property
    def place(self) -> QueueRef:
        """Return the queue."""
        place = place_of(self.queue)
        if place is None:
            raise signing.BadSignature(f"{self.queue!r} is no longer a queue of this project")
        return place

    @property
    def tally(self) -> Tally:
        """Return the outcomes of the messages so far."""
        return Tally(Counter({"": self.done}), Counter(self.stayed))

    @property
    def position(self) -> Position:
        """Return where to go on."""
        return Position(bytes.fromhex(self.score), bytes.fromhex(self.message_id)) if self.score else self._first()

    def _first(self) -> Position:
        return Position.behind_all_of(self.asked_ms) if self.state in RECEIVED else START

    def token(self) -> str:
        """Return the job as signed text."""
        return signing.dumps(asdict(self), salt=SALT, compress=True)

    @classmethod
    def from_token(cls, token: str) -> Self:
        """Return the job of a text. Raises BadSignature; KeyError or TypeError for one of another version."""
        fields = signing.loads(token, salt=SALT, max_age=MAX_AGE_S)
        return cls(**{**fields, "id": fields["id"], "words": tuple(fields["words"])})

    def description(self) -> str:
        """Return which messages are meant, for the page and the log; words of a search may be secret."""
        parts = [_("of queue %(queue)s") % {"queue": self.place.label}]
        texts = {
            "state": (_("in state %s"), self.state),
            "words": (_("matching %d search words"), len(self.words)),
            "failure": (_("of failure %s"), self.name or self.failure),
            "task": (_("of task %s"), self.task),
            "error": (_("of error %s"), self.error),
            "limit": (_("at most %d"), self.limit),
        }
        parts += [text % value for text, value in texts.values() if value]
        return ", ".join(parts)

    def title(self) -> str:
        """Return the operation and its messages: "Retry · shop.tasks.pay, ConnectionError", or "Delete · mail"."""
        return f"{self.what.title} · {self.name or self.place.label}"

    def fits(self, message: StoredMessage, now_ms: int) -> bool:
        """Return whether a message is meant, as far as the search did not say."""
        if self._is_newer(message) or self._was_rescheduled(message, now_ms):
            return False
        if self.failure:
            return fingerprint_of(message.failure()) == self.failure
        return Filter(task=self.task or None, error=self.error or None).fits(message)

    def _is_newer(self, message: StoredMessage) -> bool:
        """Return whether a message was sent, delivered for the first time, or died after the question."""
        if message.sent_ms is None and self.looked_at >= self.to_look_at:  # its id does not say when it was sent
            return True
        failure = message.failure()
        died_ms = min(failure.died_ms or 0, message.visible_at_ms) if failure is not None else 0
        return max(message.sent_ms or 0, message.first_received_ms or 0, died_ms) > self.asked_ms

    def _was_rescheduled(self, message: StoredMessage, now_ms: int) -> bool:
        """Return whether an earlier slice may have set when a message is visible: it was put behind that slice."""
        if self.operation not in ("run_now", "delay"):
            return False
        moved_ms = 1000 * int(self.params.get("seconds", 0))
        return self.began_ms + moved_ms <= message.visible_at_ms <= now_ms + moved_ms


def claim(job: BulkJob) -> bool:
    """Return whether the step of this page is to be carried out; False when its page was sent before."""
    client = job.place.client
    return client.run(claim_step(client.namespace, job.id, job.step, ttl_s=2 * MAX_AGE_S))


def go_on(job: BulkJob, seconds: float) -> Iterator[BulkJob]:
    """Continue a job for about N seconds; yield its progress after each slice, also a failed one."""
    until = time.monotonic() + seconds
    while not job.is_finished:
        job, failure = _step(job)
        yield job
        if failure is not None:
            raise failure
        if time.monotonic() > until:
            return


def _step(job: BulkJob) -> tuple[BulkJob, RsmqError | None]:
    """Check up to a thousand messages, and apply the operation to the matching ones.

    A job ends at the end of the queue, not after a number of messages: newer messages, and messages delayed by an
    earlier slice, may come before the rest.
    """
    place, tally = job.place, job.tally
    which: Literal["all", "received", "new"] = RECEIVED.get(job.state, "all")
    left = job.to_look_at - job.looked_at
    found = place.client.run(
        search(
            place.client.namespace,
            place.name,
            SearchTerms(job.words, job.in_bodies, which=which),
            after=job.position,
            until_ms=job.asked_ms if job.state == READY else ALL,
            count=min(left, MAX_BATCH) if left > 0 else MAX_BATCH,
        )
    )
    job = replace(job, began_ms=job.began_ms or found.now_ms)
    meant = [message for message in found.messages if job.fits(message, found.now_ms)]
    if job.limit is not None:
        meant = meant[: max(0, job.limit - tally.all)]
    failure = None
    try:
        job.what.carry_out(place, meant, job.params, tally)
    except RsmqError as error:
        failure = error
    job = replace(job, done=tally.moved.total(), stayed=dict(tally.stayed))
    if failure is not None:
        return job, failure
    end, looked_at = found.end, job.looked_at + found.looked_at
    job = replace(
        job,
        looked_at=looked_at,
        to_look_at=max(job.to_look_at, looked_at),
        score=end.score.hex() if end else "",
        message_id=end.message_id.hex() if end else "",
        is_finished=end is None or (job.limit is not None and tally.all >= job.limit),
    )
    return job, None
