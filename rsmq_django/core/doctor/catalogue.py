"""Every kind of finding: how bad it is, why it matters, and what a repair does. docs/how-to/doctor.md explains each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .finding import Finding, Severity

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR

#: Number of ids or fields that a finding shows, of possibly a million.
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Severity, reason and repair of all findings of one kind."""

    severity: Severity
    why: str
    repair: str | None = None


KINDS = {
    # -- The server ---------------------------------------------------------------------------------------------------
    "not-allowed": FindingKind(NOTE, "the server's user may not read this, so nothing is known about it"),
    "old-server": FindingKind(ERROR, "the scripts of this package need Redis 6.2 or Valkey"),
    "known-vulnerability": FindingKind(
        WARNING, "users who may send commands could take over the server; a distribution may have fixed its package"
    ),
    "replica": FindingKind(ERROR, "a replica accepts no writes, so nothing can be sent or received here"),
    "writes-refused": FindingKind(
        ERROR,
        "nothing can be sent, received or acknowledged; start or reconnect replicas, or lower min-replicas-to-write. A "
        "good replica has answered within min-replicas-max-lag",
    ),
    "not-durable": FindingKind(
        ERROR, "calls raise NotConfirmed or are refused; docs/how-to/durability.md has the conditions"
    ),
    "left-out-shard": FindingKind(
        WARNING,
        "no worker receives its messages; raise SHARDS until they are processed, unless another project uses the "
        "namespace",
    ),
    "evicting-policy": FindingKind(
        WARNING,
        "at its memory limit the server would delete whole queues without an error; set maxmemory-policy noeviction",
    ),
    "memory-almost-full": FindingKind(WARNING, "at its limit the server refuses new messages; receiving still works"),
    "no-persistence": FindingKind(WARNING, "a restart of the server loses every message; set appendonly yes"),
    "persistence-failing": FindingKind(ERROR, "the server may refuse writes, and a restart loses all messages since"),
    "evicted-keys": FindingKind(
        WARNING,
        "queues, messages or results may be gone; raise maxmemory, and set maxmemory-policy noeviction, which refuses "
        "new messages instead",
    ),
    "clock-differs": FindingKind(
        WARNING, "tasks with a scheduled time start early or late; queues use the server's clock only"
    ),
    # -- Which queues there are ---------------------------------------------------------------------------------------
    "not-scanned": FindingKind(NOTE, "unlisted queues and data of deleted queues are not found"),
    "not-created": FindingKind(NOTE, "it is in the settings; the first send or a worker creates it"),
    "unlisted": FindingKind(
        WARNING,
        "it works, but no client lists it: its creation was interrupted, or its client keeps no list",
        "add it to the list",
    ),
    "half-created": FindingKind(
        ERROR,
        "for some calls of other clients it exists, for others it does not",
        "add the missing attributes, from the settings or RSMQ's defaults, and add it to the list",
    ),
    "ghost": FindingKind(
        ERROR,
        "its messages are unreachable: it was deleted during a send, or a client removed its attributes",
        "add attributes, from the settings or RSMQ's defaults, and list it, so that its messages can be received",
    ),
    "missing-queue": FindingKind(WARNING, "it is listed, but every call on it fails", "remove it from the list"),
    "stray-index": FindingKind(
        WARNING,
        "a client deleted the queue but not its index: a new queue of that name would start with phantoms",
        "remove the ids without a body",
    ),
    "reserved-name": FindingKind(
        ERROR,
        "its messages would have the key of the list of queues: they are lost, although their senders get ids",
        "move the bodies to a readable queue, then remove it, so that senders get an error",
    ),
    "foreign-name": FindingKind(
        WARNING, "its name breaks RSMQ's rules: it can be listed, but most clients refuse every call"
    ),
    "wrong-type": FindingKind(
        ERROR, "another program uses its key, so every call on it fails; rename one of the two manually"
    ),
    "expiring": FindingKind(
        ERROR, "when its keys expire, the server deletes all its messages at once", "remove the expiry"
    ),
    "rbmq": FindingKind(WARNING, "rbmq has another format: neither this package nor any RSMQ client reads its queues"),
    "keys-without-colon": FindingKind(
        WARNING, "rsmq_async before 10 writes its keys without a colon, so no other client finds its queues; update it"
    ),
    # -- Attributes ---------------------------------------------------------------------------------------------------
    "broken-attribute": FindingKind(
        ERROR,
        "no client can use it: receives or sends fail, or limits are ignored",
        "set it to the value of the settings, or to RSMQ's default",
    ),
    "fractional-attribute": FindingKind(
        WARNING,
        "the reference truncates it (with 0.5 s, a message is never invisible), Rust clients fail",
        "round it up to a whole second",
    ),
    "milliseconds": FindingKind(
        ERROR,
        "a client that stores milliseconds created it; others make messages invisible a thousand times too long: "
        'set VT_UNIT "ms" if all of its clients use milliseconds, else set its attributes again',
    ),
    "perhaps-milliseconds": FindingKind(
        WARNING,
        "a long, round value: a client that stores milliseconds may have set it; then for all others, messages "
        "are invisible a thousand times too long",
    ),
    "foreign-attributes": FindingKind(
        NOTE, "another client stores it in its own format; it is read as far as possible"
    ),
    "differs-from-settings": FindingKind(
        WARNING, "the stored value is used, because other programs share the queue; set_attributes() changes it"
    ),
    # -- Messages -----------------------------------------------------------------------------------------------------
    "scores-in-seconds": FindingKind(
        ERROR, "a client stores times in seconds: for all others its messages are never invisible"
    ),
    "scores-in-microseconds": FindingKind(
        ERROR, "a client stores times in microseconds: for all others its messages are never visible"
    ),
    "far-future": FindingKind(
        ERROR, "no delay or visibility timeout is that long: these messages will be invisible for months"
    ),
    "sent-in-the-future": FindingKind(
        WARNING, "the server's clock was set back: messages that were invisible then stay so for that much longer"
    ),
    "phantoms": FindingKind(
        WARNING,
        "they have no body: other clients return nothing for them, repeatedly, or get stuck",
        "remove them, and record the last hundred",
    ),
    "phantoms-removed": FindingKind(NOTE, "ids without a body were removed from the queue: a client loses bodies"),
    "orphan-bodies": FindingKind(
        ERROR,
        "no client can receive them: their messages were lost between two steps of a client, or deleted by a client "
        "that keeps the bodies",
        "move them to the queue with the suffix '-orphans', where they can be read, sent again or purged",
    ),
    "orphan-counters": FindingKind(NOTE, "they use memory and belong to no message", "remove them"),
    "foreign-ids": FindingKind(NOTE, "the reference can receive these messages but neither delete nor extend them"),
    "foreign-fields": FindingKind(
        NOTE, "another client stores its own data in the queue's hash; this package does not change it"
    ),
    # -- Workers and backlogs --------------------------------------------------------------------------------------
    "unserved": FindingKind(
        WARNING, "no task runs until a worker that consumes this queue is started: manage.py rsmq_worker"
    ),
    "not-in-settings": FindingKind(
        NOTE,
        "if it was renamed or removed, its calls never run: add it to RSMQ['QUEUES'] until it is empty; if another "
        "program consumes it, add it with FOR_OTHERS",
    ),
    "late": FindingKind(
        WARNING,
        "more messages arrive than workers process, or tasks wait for a slow service: start more workers, or set "
        "another target in RSMQ['PIPELINE']['WAIT_TARGETS_S']",
    ),
    "failing": FindingKind(WARNING, "a task, or a service that it calls, fails; the admin shows the errors"),
    "mixed-tasks": FindingKind(
        WARNING,
        "a worker that does not know the task of a call releases the call for UNKNOWN_TASK_GRACE_S, then makes it a "
        "dead letter; a rolling deployment ends this by itself, two projects need separate queues or a NAMESPACE each",
    ),
    "paused-backlog": FindingKind(NOTE, "workers receive nothing from it until it is resumed: rsmqctl queue resume"),
    "dead-letters": FindingKind(
        WARNING,
        "they failed for good and stay there; list them with rsmqctl message list or in the admin, redrive them with "
        "manage.py rsmq_redrive",
    ),
    "dead-messages": FindingKind(
        WARNING,
        "they failed for good and stay there; list them with rsmqctl reliable inspect or topic tail, or in the admin",
    ),
    "stale-worker": FindingKind(
        WARNING,
        "it was killed with its supervisor, its machine is down, or it cannot reach Redis; another worker on its "
        "queues recovers the messages that it had leased",
    ),
    # -- Data of this package -----------------------------------------------------------------------------------------
    "stale-side-data": FindingKind(
        NOTE,
        "failure records or counters of messages that another client deleted; they use memory",
        "remove them",
    ),
    "unsigned-schedule": FindingKind(
        ERROR,
        "no worker fires it: its queue is signed or encrypted, and the entry is neither declared by the code nor "
        "signed with a key of the queue. Remove it; if you know it, add it again, otherwise find out its author",
    ),
    "stuck-workflow": FindingKind(
        WARNING,
        "its sender died during the send, so it never ends: no callback is sent, and the sent members run without it",
        "cancel it: no more members are sent, and it expires",
    ),
    "quiet-workflow": FindingKind(
        NOTE,
        "this is normal if its members run or wait for a long time; but if messages of members were purged or deleted, "
        "it cannot continue and counts as running until it expires. End it with Cancel in the admin, or with "
        "get_workflow(id).cancel()",
    ),
}


def found(
    kind: str, subject: str, what: str, *, examples: Iterable[str] = (), severity: Severity | None = None
) -> Finding:
    """Return a finding of this kind, with the texts of the catalogue."""
    known = KINDS[kind]
    shown = tuple(examples)[:EXAMPLES]
    return Finding(kind, severity or known.severity, subject, what, known.why, known.repair, shown)
