"""Every kind of finding: how bad it is, why it matters, and what a repair does. docs/doctor.md explains each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .finding import Finding, Severity

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR

#: So many ids or fields are shown of what may be a million.
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """What all findings of one kind have in common."""

    severity: Severity
    why: str
    repair: str | None = None


KINDS = {
    # -- The server ---------------------------------------------------------------------------------------------------
    "not-allowed": Kind(NOTE, "the server's user may not look there, so nothing is known about it"),
    "old-server": Kind(ERROR, "the scripts of this package need Redis 6.2 or Valkey"),
    "known-vulnerability": Kind(
        WARNING, "whoever may send commands could break into the server; a distribution may have mended its package"
    ),
    "replica": Kind(ERROR, "a replica takes no writes, so nothing can be sent or received here"),
    "evicting-policy": Kind(
        WARNING,
        "at its memory limit the server would drop whole queues without a word; set maxmemory-policy noeviction",
    ),
    "memory-almost-full": Kind(WARNING, "at its limit the server refuses new messages; receiving goes on"),
    "no-persistence": Kind(WARNING, "a restart of the server loses every message; switch appendonly on"),
    "persistence-failing": Kind(ERROR, "the server may refuse writes, and a restart loses what came since"),
    "evicted-keys": Kind(
        WARNING,
        "queues, messages or results may be gone; raise maxmemory, and set maxmemory-policy noeviction, which refuses "
        "new messages instead",
    ),
    "clock-differs": Kind(WARNING, "tasks with a time to run start early or late; queues use the server's clock only"),
    # -- Which queues there are ---------------------------------------------------------------------------------------
    "not-scanned": Kind(NOTE, "queues that no list names and data of deleted queues stay unseen"),
    "not-created": Kind(NOTE, "the settings name it; the first send or a worker creates it"),
    "unlisted": Kind(
        WARNING,
        "it works, but no client lists it: its creation was cut off, or its client keeps no list",
        "put it on the list",
    ),
    "half-created": Kind(
        ERROR,
        "other clients say both that it exists and that it does not",
        "fill in what is missing, from the settings or RSMQ's defaults, and put it on the list",
    ),
    "ghost": Kind(
        ERROR,
        "its messages are unreachable: it was deleted while somebody sent, or a client removed its attributes",
        "give it attributes, from the settings or RSMQ's defaults, and list it: its messages can be received",
    ),
    "missing-queue": Kind(WARNING, "every call on it fails although it is listed", "take it off the list"),
    "stray-index": Kind(
        WARNING,
        "a client deleted the queue and left its index: a new queue of that name would begin with phantoms",
        "remove the ids that no body belongs to",
    ),
    "reserved-name": Kind(
        ERROR,
        "the list of queues has the key of its messages, so what is sent to it is lost although its sender gets an id",
        "move the bodies to a queue that can be read, then remove it, so that senders get an error",
    ),
    "foreign-name": Kind(WARNING, "its name breaks RSMQ's rules: it can be listed, but most clients refuse every call"),
    "wrong-type": Kind(ERROR, "another program uses its key, so every call on it fails; rename one of the two by hand"),
    "expiring": Kind(ERROR, "when its time is over the server drops all messages at once", "let it live for ever"),
    "rbmq": Kind(WARNING, "rbmq's format is another one: neither this package nor any RSMQ client reads its queues"),
    "keys-without-colon": Kind(
        WARNING, "rsmq_async before 10 writes its keys without a colon, so no other client sees its queues; update it"
    ),
    # -- Attributes ---------------------------------------------------------------------------------------------------
    "broken-attribute": Kind(
        ERROR,
        "no client can work with it: receives or sends fail, or limits are ignored",
        "set it as the settings say, or to RSMQ's default",
    ),
    "fractional-attribute": Kind(
        WARNING,
        "the reference cuts the fraction off (0.5 s means that a message is never hidden), Rust clients fail",
        "round it up to a whole second",
    ),
    "milliseconds": Kind(
        ERROR,
        "a client that stores milliseconds made it, and all others hide messages a thousand times too long; give it "
        'VT_UNIT "ms" if all of its clients do that, else set its attributes again',
    ),
    "perhaps-milliseconds": Kind(
        WARNING,
        "it is so long, and so round, that a client which stores milliseconds may have made it; then others hide "
        "messages a thousand times too long",
    ),
    "foreign-attributes": Kind(NOTE, "another client stores it in its own way; it is read as far as possible"),
    "differs-from-settings": Kind(
        WARNING, "the stored value is used, because other programs share the queue; set_attributes() changes it"
    ),
    # -- Messages -----------------------------------------------------------------------------------------------------
    "scores-in-seconds": Kind(ERROR, "a client counts in seconds: for all others its messages are never hidden"),
    "scores-in-microseconds": Kind(ERROR, "a client counts in microseconds: for all others its messages never appear"),
    "far-future": Kind(
        ERROR, "no delay or visibility timeout is that long: these messages will not be seen for months"
    ),
    "sent-in-the-future": Kind(
        WARNING, "the server's clock went back: what was hidden then stays hidden for that much longer"
    ),
    "phantoms": Kind(
        WARNING,
        "they have no body; other clients hand out nothing for them, again and again, or get stuck",
        "remove them, and remember the last hundred",
    ),
    "phantoms-removed": Kind(NOTE, "ids without a body were removed from the queue: a client loses bodies"),
    "orphan-bodies": Kind(
        ERROR,
        "nobody can receive them: the messages were lost between two steps of a client, or deleted by one that leaves "
        "the bodies",
        "move them to the queue with '-orphans' at the end of its name, where they can be read, sent again or purged",
    ),
    "orphan-counters": Kind(NOTE, "they take memory and belong to no message", "remove them"),
    "foreign-ids": Kind(NOTE, "the reference can receive these messages but neither delete nor extend them"),
    "foreign-fields": Kind(NOTE, "another client keeps data of its own in the queue's hash; nothing here touches it"),
    # -- Whether queues are worked on --------------------------------------------------------------------------------
    "unserved": Kind(
        WARNING, "nothing will run until a worker starts that takes messages from it: manage.py rsmq_worker"
    ),
    "late": Kind(
        WARNING,
        "more comes in than workers process, or tasks wait for something slow: start more workers, or set another "
        "target in RSMQ['PIPELINE']['WAIT_TARGETS_S']",
    ),
    "failing": Kind(WARNING, "a task, or a service that it calls, is broken; the admin shows the errors"),
    "mixed-tasks": Kind(
        WARNING,
        "a call of a task that one of them does not know is given back for UNKNOWN_TASK_GRACE_S and is a dead "
        "letter then; it passes with a rolling deployment, and two projects need queues or a NAMESPACE of "
        "their own",
    ),
    "paused-backlog": Kind(NOTE, "workers take nothing from it until it is resumed: rsmqctl queue resume"),
    "dead-letters": Kind(
        WARNING,
        "they failed for good and stay there; look at them with rsmqctl message list or in the admin, send them again "
        "with manage.py rsmq_redrive",
    ),
    "stale-worker": Kind(
        WARNING,
        "it was killed with its supervisor, its machine is gone, or it cannot reach Redis; another worker on its "
        "queues gives back the messages that it held",
    ),
    # -- Our own side data --------------------------------------------------------------------------------------------
    "stale-side-data": Kind(
        NOTE,
        "failure records or counters of messages that another client deleted; they take memory",
        "remove them",
    ),
    "unsigned-schedule": Kind(
        ERROR,
        "no worker fires it: its queue is signed or encrypted, and the entry is neither declared by the code nor "
        "signed with a key of the queue. Remove it; if you know it, add it again, otherwise find out what wrote it",
    ),
    "stuck-workflow": Kind(
        WARNING,
        "its sender died while it was sending, so it runs for ever: no callback follows, and what was sent runs alone",
        "cancel it: nothing more can follow, and it expires",
    ),
    "quiet-workflow": Kind(
        NOTE,
        "members may run or wait for long, and then all is well; but where messages of members were purged or deleted, "
        "nothing follows any more, and it counts as running until it expires. End it with Cancel in the admin, or with "
        "get_workflow(id).cancel()",
    ),
}


def found(
    kind: str, subject: str, what: str, *, examples: Iterable[str] = (), severity: Severity | None = None
) -> Finding:
    """Return a finding of a kind of the catalogue."""
    known = KINDS[kind]
    shown = tuple(examples)[:EXAMPLES]
    return Finding(kind, severity or known.severity, subject, what, known.why, known.repair, shown)
