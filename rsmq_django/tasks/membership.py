"""The place of a call in its workflow: `meta["workflow"]` of its envelope.

Small, because every member's message contains it: the workflow, the number of the member, and the next calls. These are
stored in Redis (core/tasks/workflows.py); here are only their ids and queues, so that scripts can be given keys. Any
program may have written a message: an invalid membership is ignored, and the message runs as any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..conf.settings import get_settings
from ..core.errors import InvalidName
from ..core.keys import checked_name, queue_keys
from ..core.numbers import is_whole
from ..core.tasks.workflows import MAX_MEMBERS, End, Role, Target
from .proofs import owner_of

META = "workflow"
#: First argument of a call: nothing, the result of the previous step, all results, or all failures.
Takes = Literal["", "result", "results", "failures"]
TAKES: tuple[Takes, ...] = ("", "result", "results", "failures")

_ID = re.compile(r"[0-9A-Za-z]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ref:
    """A call that is sent later."""

    task_id: str
    #: Its queue, or priority band.
    queue_name: str

    def words(self) -> list[str]:
        """Return the stored form."""
        return [self.task_id, self.queue_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The place of a call in a workflow."""

    workflow_id: str
    #: None for a callback, which is not a member.
    member: int | None = None
    #: 0 for the first step of a chain.
    step: int = 0
    takes: Takes = ""
    following: Ref | None = None
    then: Ref | None = None
    on_failure: Ref | None = None

    def words(self) -> dict[str, Any]:
        """Return the stored form, without empty values."""
        words: dict[str, Any] = {"id": self.workflow_id}
        if self.member is not None:
            words["member"] = self.member
        if self.step:
            words["step"] = self.step
        if self.takes:
            words["takes"] = self.takes
        refs = {"next": self.following, "then": self.then, "on_failure": self.on_failure}
        return words | {name: ref.words() for name, ref in refs.items() if ref is not None}

    def targets(self, namespace: str) -> list[Target]:
        """Return the calls that may be sent when this call ends."""
        found = []
        if self.following is not None:
            found.append(target(namespace, "next", f"{self.member}.{self.step + 1}", self.following))
        return found + callbacks(namespace, self.then, self.on_failure)

    def end(self, namespace: str, *, task_id: str, said: str) -> End:
        """Return the end of this member with its value or failure record (JSON)."""
        assert self.member is not None
        return End(
            namespace=namespace,
            workflow_id=self.workflow_id,
            member=self.member,
            task_id=task_id,
            said=said,
            targets=self.targets(namespace),
        )


def failure_record(*, task_id: str, task: str, reason: str, error: str, message: str) -> str:
    """Return the failure record that a workflow stores: JSON."""
    return json.dumps({"task_id": task_id, "task": task, "reason": reason, "error": error, "message": message})


def callbacks(namespace: str, then: Ref | None, on_failure: Ref | None) -> list[Target]:
    """Return the callbacks of the workflow."""
    found = []
    if then is not None:
        found.append(target(namespace, "then", "then", then))
    if on_failure is not None:
        found.append(target(namespace, "on_failure", "on_failure", on_failure))
    return found


def target(namespace: str, role: Role, field: str, ref: Ref) -> Target:
    """Return the arguments of scripts for a call that is sent later."""
    queue_name = get_settings().base_name(ref.queue_name)
    owner = owner_of(ref.queue_name) if role == "next" else ""
    return Target(role, field, ref.task_id, ref.queue_name, queue_keys(namespace, queue_name).channel, owner)


def membership_of(meta: Mapping[str, Any] | None) -> Membership | None:
    """Return the place of a call in a workflow; None when it has none, or an unreadable one."""
    words = meta.get(META) if meta else None
    if not isinstance(words, dict) or not isinstance(words.get("id"), str) or not _ID.fullmatch(words["id"]):
        return None
    member, step, takes = words.get("member"), words.get("step", 0), words.get("takes", "")
    if takes not in TAKES or not _is_number(step) or not (member is None or _is_number(member)):
        return None
    try:
        refs = [_ref(words.get(name)) for name in ("next", "then", "on_failure")]
    except (ValueError, InvalidName):
        return None
    following, then, on_failure = refs
    return Membership(
        workflow_id=words["id"],
        member=member,
        step=step,
        takes=takes,
        following=following,
        then=then,
        on_failure=on_failure,
    )


def is_task_id(text: str) -> bool:
    """Return whether this is a valid task id of a member; other texts could contain the name of a queue."""
    return _ID.fullmatch(text) is not None


def _is_number(value: Any) -> bool:
    return is_whole(value) and 0 <= value < MAX_MEMBERS


def _ref(words: Any) -> Ref | None:
    if words is None:
        return None
    if not isinstance(words, list) or len(words) != 2 or not all(isinstance(word, str) for word in words):
        raise ValueError("no reference")
    task_id, queue_name = words
    if not _ID.fullmatch(task_id):
        raise ValueError("no task id")
    return Ref(task_id, checked_name(queue_name))
