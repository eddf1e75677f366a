"""Reading results and failures of a workflow's members. Any program may have written the numbers in its hash.

How much is read is bounded by the entries that exist, by the maximum number of members and by the maximum length of a
value, never by a number from Redis alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..keys import workflow_keys
from ..limits import MAX_BATCH, MAX_BODY_BYTES, MAX_TRIP_BYTES
from ..numbers import read_whole
from ..transport.call import Argument, Call
from ..transport.reading_steps import Reading
from .workflows import MAX_MEMBERS

#: Maximum length of a value or failure record: MAX_RESULT_BYTES allows 16 MiB of JSON, and proofs may follow it.
MAX_OUTCOME_BYTES = MAX_BODY_BYTES + 4096
#: Replaces a longer one. Its JSON part is empty, so it is neither readable nor proven.
TOO_LONG = b"\nlonger than any result"


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a workflow."""

    #: The number of members according to its hash; None for an impossible number.
    members: int | None
    #: Proofs of that number, for callbacks on signed and encrypted queues.
    member_proofs: tuple[str, ...]
    #: The number of entries that exist for members: unfinished ones, results and failures. A workflow that keeps
    #: results has at least one for each member.
    entries: int

    @property
    def is_plausible(self) -> bool:
        """Return whether a workflow that keeps results can have this number of members."""
        return self.members is not None and self.members <= self.entries


def read_extent(namespace: str, workflow_id: str) -> Call[Extent | None]:
    """Return the call that reads the size of a workflow; None when it does not exist any more."""

    def read(reply: list[Any]) -> Extent | None:
        if not reply:
            return None
        sent, then_proof, failure_proof, *lengths = reply
        members = read_whole(sent)
        return Extent(
            members if members is not None and 0 <= members <= MAX_MEMBERS else None,
            tuple(proof.decode("ascii", "replace") for proof in (then_proof, failure_proof) if proof),
            sum(lengths),
        )

    return Call("tasks/workflow/extent", workflow_keys(namespace, workflow_id)[:4], (), read, repeatable=True)


def outcomes(
    namespace: str, workflow_id: str, numbers: Sequence[int], *, failures_only: bool = False
) -> Call[list[tuple[bytes, bytes]]]:
    """Return the call that reads values and failure records (JSON) of members; b"" for a missing one.

    The reply ends with the member that fills it (MAX_TRIP_BYTES); it is empty when the workflow does not exist any
    more. Both have their proofs: see without_proofs().
    """
    assert 0 < len(numbers) <= MAX_BATCH

    def read(reply: list[bytes]) -> list[tuple[bytes, bytes]]:
        return [(value, _record_of(failure)) for value, failure in zip(reply[::2], reply[1::2], strict=True)]

    state, _, results, failures, *_ = workflow_keys(namespace, workflow_id)
    what = "failures" if failures_only else "both"
    args: tuple[Argument, ...] = (what, MAX_TRIP_BYTES, MAX_OUTCOME_BYTES, TOO_LONG, *numbers)
    return Call("tasks/workflow/outcomes", (state, results, failures), args, read, repeatable=True)


def _record_of(failure: bytes) -> bytes:
    return failure if failure == TOO_LONG else failure.partition(b" ")[2]


def numbers_in(namespace: str, workflow_id: str, part: str, cursor: bytes) -> Call[tuple[bytes, list[int]]]:
    """Return the call that reads some of the members that have a result or failed, and the next cursor (b"0": end).

    `part` is "results" or "failures". A member may be there twice.
    """

    def read(reply: list[bytes]) -> tuple[bytes, list[int]]:
        following, *fields = reply
        return following, [int(field) for field in fields]

    key = workflow_keys(namespace, workflow_id)[2 if part == "results" else 3]
    return Call("tasks/workflow/numbers", (key,), (cursor,), read, repeatable=True)


def find_numbers(namespace: str, workflow_id: str, *parts: str, below: int) -> Reading[list[int]]:
    """Find the members below a number that have an entry in one of these parts; returns their numbers, sorted."""
    found: set[int] = set()
    for part in parts:
        cursor = b""
        while cursor != b"0":
            cursor, numbers = yield numbers_in(namespace, workflow_id, part, cursor or b"0")
            found.update(number for number in numbers if number < below)
    return sorted(found)


def read_outcomes(
    namespace: str,
    workflow_id: str,
    numbers: Sequence[int],
    take: Callable[[int, bytes, bytes], None],
    *,
    failures_only: bool = False,
) -> Reading[bool]:
    """Pass value and failure record of each of these members to `take`; return False if the workflow does not exist."""
    at = 0
    while at < len(numbers):
        some = numbers[at : at + MAX_BATCH]
        pairs = yield outcomes(namespace, workflow_id, some, failures_only=failures_only)
        if not pairs:
            return False
        for number, (value, failure) in zip(some, pairs, strict=False):
            take(number, value, failure)
        at += len(pairs)
    return True
