"""Proofs for the values of a workflow on signed or encrypted queues (proofs.py): any program may write to Redis.

Values, failure records and the number of members are stored with proofs, made with the key of the queue that gets them
and for that one call: its workflow, the member, and its task id. They are made where a message of a sealed queue is
settled, so the chain of trust begins where the workflow was enqueued. A result of a queue without keys has no proofs,
and so cannot be given to a call on a sealed queue; workflow_plan.py refuses such a workflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..conf.settings import QueueSettings, get_settings
from ..core.tasks.workflow_records import MEMBER_PROOFS, proofs_of, without_proofs
from .membership import Membership, Ref
from .proofs import Keyring, accepts_old, keyring, keyring_of, writes_proofs

Kind = Literal["value", "failure"]
VALUE: Kind = "value"
FAILURE: Kind = "failure"
#: The kinds of these proofs.
ARGUMENT, MEMBERS, OUTCOME = "argument", "members", "outcome"
#: A value is given to one call, a failure to two at the most, and each has one proof for Workflow.authentic(); another
#: program may have written any number of lines.
MOST_PROOFS = 4


class ForgedArgument(Exception):
    """The value for a call on a sealed queue was not written by a process with the queue's keys."""


def proven(said: str, membership: Membership, kind: Kind, *, queue_name: str = "") -> str:
    """Return a value or failure record (JSON) of a member with its proofs.

    One for each call on a sealed queue that gets it, and one of the sealed queue on which the member ended.
    """
    content, lines = said.encode("utf-8", "surrogatepass"), [said]
    for ref in _receivers(membership, kind):
        keys = keyring_of(ref.queue_name)
        if keys is not None and writes_proofs(ref.queue_name):
            words = _words(membership.workflow_id, membership.member, ref.task_id, kind)
            lines.append(keys.prove(ARGUMENT, *words, content=content))
    own = keyring_of(queue_name) if queue_name else None
    if own is not None and writes_proofs(queue_name):
        lines.append(own.prove(OUTCOME, membership.workflow_id, str(membership.member), kind, content=content))
    return "\n".join(lines)


def is_proven(workflow_id: str, member: int, kind: Kind, word: bytes) -> bool:
    """Return whether a process with the keys of a sealed queue of this project wrote a value or failure record."""
    content, proofs = without_proofs(word), proofs_of(word)[:MOST_PROOFS]
    keyrings = filter(None, map(keyring_of, get_settings().queues)) if proofs else ()
    words = (workflow_id, str(member), kind)
    return any(keys.verifies(proof, OUTCOME, *words, content=content) for keys in keyrings for proof in proofs)


def _receivers(membership: Membership, kind: Kind) -> Iterable[Ref]:
    if kind == "failure":
        refs = [membership.then, membership.on_failure]
    else:
        refs = [membership.following or membership.then]
    return [ref for ref in refs if ref is not None]


def _words(workflow_id: str, member: int | None, task_id: str, kind: Kind) -> tuple[str, ...]:
    return workflow_id, str(member), task_id, kind


def member_fields(workflow_id: str, members: int, *, then: Ref | None, on_failure: Ref | None) -> dict[str, str]:
    """Return the fields of a workflow's state that prove its number of members to callbacks on sealed queues."""
    found = {}
    refs = {"then": then, "on_failure": on_failure}
    for field, role in MEMBER_PROOFS.items():
        ref = refs[role]
        keys = keyring_of(ref.queue_name) if ref is not None else None
        if ref is not None and keys is not None:
            found[field] = keys.prove(MEMBERS, workflow_id, ref.task_id, str(members))
    return found


@dataclass(frozen=True, slots=True)
class Receiver:
    """A call on a sealed queue that gets values from its workflow."""

    keys: Keyring
    workflow_id: str
    task_id: str
    #: Values without a proof are accepted, for workflows that a release before these proofs has begun.
    takes_unproven: bool

    @classmethod
    def of(
        cls, queue: QueueSettings, *, name: str, namespace: str, membership: Membership, task_id: str
    ) -> Receiver | None:
        """Return the receiver; None on a queue without keys."""
        if not queue.is_sealed:
            return None
        return cls(keyring(queue, name=name, namespace=namespace), membership.workflow_id, task_id, accepts_old(queue))

    def check(self, member: int, kind: Kind, word: bytes) -> bytes:
        """Return the JSON of a value or failure record. Raises ForgedArgument."""
        content, proofs = without_proofs(word), proofs_of(word)[:MOST_PROOFS]
        words = _words(self.workflow_id, member, self.task_id, kind)
        if any(self.keys.verifies(proof, ARGUMENT, *words, content=content) for proof in proofs):
            return content
        if self.takes_unproven and not proofs:
            return content
        raise self._forged(f"the {kind} of member {member}")

    def check_members(self, members: int, proofs: Iterable[str]) -> None:
        """Raise ForgedArgument unless the workflow has this number of members."""
        proofs = list(proofs)
        if any(self.keys.verifies(proof, MEMBERS, self.workflow_id, self.task_id, str(members)) for proof in proofs):
            return
        if not (self.takes_unproven and not proofs):
            raise self._forged("the number of members")

    def no_failures(self) -> ForgedArgument:
        """Return the error for a failure callback of a workflow without failures."""
        return self._forged("the list of failures, which is empty,")

    def _forged(self, what: str) -> ForgedArgument:
        return ForgedArgument(
            f"{what} in workflow {self.workflow_id} is not signed with a key of queue {self.keys.queue_name!r} for "
            "this call: another program wrote it, a release without these signatures did, or the key was removed"
        )
