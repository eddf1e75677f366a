"""All errors of this package, as one tree under `RsmqError`.

Each text names the subject, the limit and the next step. `rsmq_name` and `rsmq_message` carry the name and the text
that the reference implementation of RSMQ uses for the same error, so that a bridge to other languages can forward them
unchanged. Replies of the server become these errors in `client.py`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "BrokenQueue",
    "ConnectionFailed",
    "DatabaseNotFound",
    "DeadLetterQueueNotFound",
    "GroupLive",
    "GroupMoved",
    "GroupNotFound",
    "InvalidMessageId",
    "InvalidName",
    "InvalidValue",
    "LeaseLost",
    "MessageNotBytes",
    "MessageTooLong",
    "NoAttributeSupplied",
    "NotConfirmed",
    "OutcomeUnknown",
    "PartlyDone",
    "PermissionDenied",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "RedisFailure",
    "RsmqError",
    "ScheduleConflict",
    "ScheduleNotFound",
    "SentinelDenied",
    "SentinelServiceNotFound",
    "ServerRefused",
    "TooManyGroups",
    "TopicBroken",
    "TopicReset",
    "WorkflowInterrupted",
    "WorkflowNotFound",
]


class RsmqError(Exception):
    """The base of all errors of this package."""

    #: `Error.name` of the reference implementation, or "" when it has no such error.
    rsmq_name: str = ""
    #: `Error.message` of the reference implementation.
    rsmq_message: str = ""

    def __init__(self, *args: object, queue_name: str = "") -> None:
        super().__init__(*args)
        #: Name of the queue concerned, for programs; the text is for people. "" if there is none.
        self.queue_name = queue_name


# -- Invalid requests of the caller: nothing was changed ------------------------------------------------


class InvalidName(RsmqError, ValueError):
    """A queue name or namespace that the format does not allow."""

    rsmq_name = "invalidFormat"
    rsmq_message = "Invalid qname format"


class InvalidMessageId(RsmqError, ValueError):
    """A value that is not a valid message id."""

    rsmq_name = "invalidFormat"
    rsmq_message = "Invalid id format"


class InvalidValue(RsmqError, ValueError):
    """A time-out, delay, size or count outside its limits."""

    rsmq_name = "invalidValue"


class NoAttributeSupplied(RsmqError, ValueError):
    """`set_attributes` was called without anything to set."""

    rsmq_name = "noAttributeSupplied"
    rsmq_message = "No attribute was supplied"


class MessageNotBytes(RsmqError, TypeError):
    """A body that is neither bytes nor text."""

    rsmq_name = "messageNotString"
    rsmq_message = "Message must be a string"


class MessageTooLong(RsmqError, ValueError):
    """A body above the queue's limit or above the client's cap."""

    rsmq_name = "messageTooLong"
    rsmq_message = "Message too long"

    def __init__(self, *args: object, size_bytes: int = 0, limit_bytes: int = 0, queue_name: str = "") -> None:
        super().__init__(*args, queue_name=queue_name)
        #: Length of the body, and its limit.
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class QueueNotFound(RsmqError):
    """No queue of that name exists in the namespace."""

    rsmq_name = "queueNotFound"
    rsmq_message = "Queue not found"


class DeadLetterQueueNotFound(QueueNotFound):
    """The dead-letter queue for a message that failed for good does not exist."""


class QueueExists(RsmqError):
    """A queue of that name exists already; its attributes were not changed."""

    rsmq_name = "queueExists"
    rsmq_message = "Queue exists"


class BrokenQueue(RsmqError):
    """The queue's stored attributes are not numbers, or a key has the wrong type: another client damaged it."""


class TopicBroken(RsmqError):
    """A key of a topic or of one of its groups has a value that is not an index: another client damaged it."""


class TopicReset(RsmqError):
    """The cursor of a group is beyond the end of its topic: the topic was deleted, or an old copy was restored."""


class GroupNotFound(RsmqError):
    """The topic has no group of that name: none of its consumers has read from the topic yet."""


class GroupLive(RsmqError):
    """The group has live consumers; nothing was changed."""


class GroupMoved(RsmqError):
    """The cursor of the group has moved since the caller read it; nothing was changed."""


class TooManyGroups(RsmqError):
    """The topic has the maximum number of groups."""


class LeaseLost(RsmqError):
    """The message was delivered again after this receive, to another consumer: this receipt is no longer valid."""


class ScheduleNotFound(RsmqError, LookupError):
    """No schedule of that name exists."""


class WorkflowNotFound(RsmqError, LookupError):
    """No workflow of that id exists: it has expired, or its transaction was not committed."""


class ScheduleConflict(RsmqError):
    """A schedule of that name exists, is declared by the code, or was changed by another process at the same moment."""


# -- The server failed, or the outcome is unknown ------------------------------------------------------------------


class RedisFailure(RsmqError):
    """The base of all errors of the server and of the connection to it."""


class ConnectionFailed(RedisFailure):
    """No connection could be made: nothing was sent, so nothing was changed."""


class SentinelServiceNotFound(ConnectionFailed):
    """All sentinels answered, and none knows the service name in the URL."""


class OutcomeUnknown(RedisFailure):
    """The command was sent and its reply was lost: it may have been carried out or not."""


class NotConfirmed(OutcomeUnknown):
    """The write was carried out, but too few replicas or disks are known to have it: a failover may lose it."""

    def __init__(
        self,
        *args: object,
        results: Sequence[Any] = (),
        task_ids: Sequence[str] = (),
        message_ids: Sequence[str] = (),
        workflow_id: str = "",
        queue_name: str = "",
    ) -> None:
        super().__init__(*args, queue_name=queue_name)
        #: Results of the calls, with errors in the places of calls that the server refused.
        self.results = list(results)
        #: Ids of the tasks that were sent, and of the messages.
        self.task_ids = list(task_ids)
        self.message_ids = list(message_ids)
        #: Id of the workflow, all of which was sent.
        self.workflow_id = workflow_id


class PartlyDone(OutcomeUnknown):
    """A call with several items failed halfway: some items were carried out, so it must not simply be repeated.

    `__cause__` is the error that ended it. Positions count from 0, in the order of the items; an item that is
    neither in `done` nor in `unknown` was not carried out, and may be sent again.
    """

    def __init__(
        self,
        *args: object,
        done: Mapping[int, object] | None = None,
        unknown: Mapping[int, object] | None = None,
        queue_name: str = "",
    ) -> None:
        super().__init__(*args, queue_name=queue_name)
        #: Position -> result of the call for that item: the id of a message or task that was sent.
        self.done = dict(done or {})
        #: Items whose reply was lost: position -> the id of the item if it was carried out; None where it is unknown.
        self.unknown = dict(unknown or {})


class WorkflowInterrupted(PartlyDone):
    """Sending a workflow failed after its creation: some of its members may run.

    `done` and `unknown` map numbers of members to ids of their tasks; a map has none, its text says how many were sent.
    """

    def __init__(
        self,
        *args: object,
        workflow_id: str = "",
        is_cancelled: bool = False,
        done: Mapping[int, object] | None = None,
        unknown: Mapping[int, object] | None = None,
        queue_name: str = "",
    ) -> None:
        super().__init__(*args, done=done, unknown=unknown, queue_name=queue_name)
        self.workflow_id = workflow_id
        #: Whether it was cancelled: members that were sent run, and nothing else is sent.
        self.is_cancelled = is_cancelled


class ServerRefused(RedisFailure):
    """The server cannot run the command now (loading, read-only, disk full, busy): nothing was changed."""


class QueueFull(ServerRefused):
    """The server has reached its memory limit: the message was not stored."""


class DatabaseNotFound(ServerRefused):
    """The server has no database with the number in the URL."""


class PermissionDenied(RedisFailure):
    """The server refused the password, or its user may not run one of the commands."""


class SentinelDenied(PermissionDenied):
    """The sentinels refused the password in the URL, or their user may not ask for the primary."""


#: Claims of errors about their own exchange, which would be false if another exchange was carried out.
_CLAIMS = ("; nothing was sent", ", nothing was stored", "; nothing was changed")


def without_claims(error: RsmqError) -> str:
    """Return the text of an error without its claim that nothing was done."""
    text = str(error)
    for claim in _CLAIMS:
        text = text.replace(claim, "")
    return text
