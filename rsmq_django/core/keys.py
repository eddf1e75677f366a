"""The names of all Redis keys, and which names a queue and a namespace may have.

RSMQ's own keys are `{ns}:QUEUES`, `{ns}:{queue}` and `{ns}:{queue}:Q`. Everything of ours begins with `{ns}::`: an
empty queue name cannot exist, so those keys can never collide with a queue's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import InvalidName

MAX_NAME_LENGTH = 160
#: Prefix of our keys of topics, which have no namespace.
TOPIC_PREFIX = "rsmqt:"
#: `{ns}:QUEUES` is the set of names and `{ns}:rt:...` are channels: queues of these names would break the namespace.
RESERVED_NAMES = frozenset({"QUEUES", "rt"})

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,160}", re.ASCII)


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue."""

    #: zset: message id -> time it becomes visible, in epoch milliseconds.
    messages: str
    #: hash: attributes, counters, and per message its body, `:rc` and `:fr`.
    settings: str
    #: set: the names of all queues of the namespace.
    queues: str
    #: pub/sub channel: the number of messages after a send.
    channel: str
    #: hash: message id -> failure record, when this queue holds dead letters.
    failures: str
    #: hash: message id -> deliveries that were given back unused and so do not count as attempts;
    #: "{message id}:crashes" -> how many processes died while they ran it.
    releases: str
    #: hash: how many phantoms (ids without a body) were removed, and a ring of the last hundred.
    phantoms: str


def shard_namespace(namespace: str, shard: int | str) -> str:
    """Return the namespace of a shard: "{rsmq-3}" for "{rsmq}", with a hash tag of its own, and "rsmq-3" for "rsmq"."""
    if not shard:
        return namespace
    opening = namespace.find("{")
    closing = namespace.find("}", opening + 1) if opening >= 0 else -1
    # Redis takes the text between the first brace and the next closing one, unless it is empty.
    end = closing if closing > opening + 1 else len(namespace)
    return f"{namespace[:end]}-{shard}{namespace[end:]}"


def queue_keys(namespace: str, name: str) -> QueueKeys:
    """Return the keys of the queue `name`."""
    return QueueKeys(
        messages=f"{namespace}:{name}",
        settings=f"{namespace}:{name}:Q",
        queues=queues_key(namespace),
        channel=f"{namespace}:rt:{name}",
        failures=f"{namespace}::dead:{name}",
        releases=f"{namespace}::released:{name}",
        phantoms=f"{namespace}::phantoms:{name}",
    )


def queues_key(namespace: str) -> str:
    """Return the key of the set of queue names."""
    return f"{namespace}:QUEUES"


def paused_key(namespace: str) -> str:
    """Return the key of the set of paused queues."""
    return f"{namespace}::paused"


def result_key(namespace: str, task_id: str) -> str:
    """Return the key of a task's result record."""
    return f"{namespace}::result:{task_id}"


def tag_key(namespace: str, tag: str) -> str:
    """Return the key of the sorted set of tasks that carry a tag."""
    return f"{namespace}::tag:{tag}"


def unique_key(namespace: str, digest: str) -> str:
    """Return the key of the hash with the message that represents all equal calls of a unique task."""
    return f"{namespace}::unique:{digest}"


def limit_key(namespace: str, digest: str) -> str:
    """Return the key of a task limit: the slots in use (hash), or the times of the latest starts (list)."""
    return f"{namespace}::limit:{digest}"


#: The keys of one workflow, in the order in which its scripts take them; tasks/lua/workflow/parts/state.lua describes
#: them.
WORKFLOW_PARTS = ("members", "results", "failures", "steps", "room")


def workflow_keys(namespace: str, workflow_id: str) -> tuple[str, ...]:
    """Return the keys of a workflow: its state, and those of WORKFLOW_PARTS."""
    state = f"{namespace}::workflow:{workflow_id}"
    return state, *(f"{state}:{part}" for part in WORKFLOW_PARTS)


def workflows_key(namespace: str) -> str:
    """Return the key of the sorted set of the newest workflows: id -> time of creation in epoch milliseconds."""
    return f"{namespace}::workflows"


def workers_key(namespace: str) -> str:
    """Return the key of the sorted set of workers: worker id -> time of its last heartbeat in epoch milliseconds."""
    return f"{namespace}::workers"


def worker_key(namespace: str, worker_id: str) -> str:
    """Return the key of the messages leased by a worker: batch -> messages (hash)."""
    return f"{namespace}::worker:{worker_id}"


def waiting_key(namespace: str, name: str) -> str:
    """Return the key of the worker processes that wait for messages of a queue: channel -> messages held (zset)."""
    return f"{namespace}::waiting:{name}"


def wake_channel(namespace: str, worker_id: str) -> str:
    """Return the channel that wakes one worker process."""
    return f"{namespace}::wake:{worker_id}"


def process_key(namespace: str, worker_id: str) -> str:
    """Return the key of a supervisor's record of a worker process; core/tasks/processes.py has its fields."""
    return f"{namespace}::process:{worker_id}"


def order_key(namespace: str, worker_id: str) -> str:
    """Return the key of the last command to a worker process: a word and its time."""
    return f"{namespace}::order:{worker_id}"


def stack_request_key(namespace: str, worker_id: str) -> str:
    """Return the key of a request for the stacks of a worker process: its time."""
    return f"{namespace}::stacks-wanted:{worker_id}"


def stacks_key(namespace: str, worker_id: str) -> str:
    """Return the key of the stacks of the running tasks of a worker process, as JSON."""
    return f"{namespace}::stacks:{worker_id}"


def retries_key(namespace: str, name: str) -> str:
    """Return the key of the sorted set of retry plans of a dead-letter queue: plan id -> time of creation (ms)."""
    return f"{namespace}::retries:{name}"


def retry_keys(namespace: str, plan_id: str) -> tuple[str, str, str]:
    """Return the keys of a retry plan: its state, its messages that have not ended, and the records of its messages."""
    plan = f"{namespace}::retry:{plan_id}"
    return plan, f"{plan}:open", f"{plan}:records"


def schedule_keys(namespace: str) -> tuple[str, str, str]:
    """Return the keys of all schedules: name -> next planned time, name -> definition, and the state."""
    return f"{namespace}::schedule", f"{namespace}::schedule:entries", f"{namespace}::schedule:state"


def relayed_key(namespace: str) -> str:
    """Return the key of the calls sent by outboxes: task id -> time until which it is remembered (zset)."""
    return f"{namespace}::relayed"


def confirm_key(namespace: str) -> str:
    """Return the key that is written to wait for the confirmation of earlier writes; it expires within a minute."""
    return f"{namespace}::confirm"


def drain_keys(namespace: str, consumer: str, name: str) -> tuple[str, str]:
    """Return the keys of a drain of the queue `name`: its journal (stream) and its open leases (hash)."""
    journal = f"{namespace}::spark:drain:{consumer}:{name}"
    return journal, f"{journal}:open"


def job_key(namespace: str, job: str) -> str:
    """Return the key of a bulk job (hash); its lists, sets and stages begin with it."""
    return f"{namespace}::spark:job:{job}"


def publishing_key(namespace: str) -> str:
    """Return the key of the set of bulk jobs that began to publish and are not done."""
    return f"{namespace}::spark:publishing"


def steps_key(namespace: str, job_id: str) -> str:
    """Return the key of the number of claimed steps of a job of the admin."""
    return f"{namespace}::steps:{job_id}"


def run_lock_key(namespace: str, digest: str) -> str:
    """Return the key that only one run of a pipeline job holds at a time."""
    return f"{namespace}::spark:lock:{digest}"


#: The keys of one reliable queue, in the order in which its scripts take them; reliable/lua/parts/queue.lua describes
#: them.
RELIABLE_PARTS = ("undelivered", "delayed", "delivered", "dead", "bodies", "history", "state", "wake")


def reliable_queues_key(namespace: str) -> str:
    """Return the key of the set of names of reliable queues."""
    return f"{namespace}::reliable"


def reliable_keys(namespace: str, name: str) -> tuple[str, ...]:
    """Return the keys of a reliable queue in the order of RELIABLE_PARTS."""
    return tuple(f"{namespace}::reliable:{name}:{part}" for part in RELIABLE_PARTS)


def events_key(namespace: str) -> str:
    """Return the key of the stream of task events; core/stats/events.py has its fields."""
    return f"{namespace}::events"


def successful_tasks_key(namespace: str) -> str:
    """Return the key of the sorted set of tasks whose last successes are kept: task -> last entered, epoch ms."""
    return f"{namespace}::events:tasks"


def successes_key(namespace: str, task: str) -> str:
    """Return the key of the stream of the last successes of a task."""
    return f"{namespace}::events:succeeded:{task}"


def counters_key(namespace: str, name: str, span_s: int, begins_s: int) -> str:
    """Return the key of a queue's counters in a span of time; core/stats/counters.py has their fields."""
    return f"{namespace}::stats:{name}:{span_s}:{begins_s}"


def unchanged_times_key(namespace: str, name: str) -> str:
    """Return the key of the sorted set of times in which a queue did not change; core/stats/counters.py explains it."""
    return f"{namespace}::stats:{name}:unchanged"


def sampling_key(namespace: str, digest: str) -> str:
    """Return the key that exists while a supervisor samples the queues whose names have this digest."""
    return f"{namespace}::sampling:{digest}"


def totals_key(namespace: str, name: str) -> str:
    """Return the key of a queue's counters of all time."""
    return f"{namespace}::stats:{name}:total"


def cancelled_key(namespace: str) -> str:
    """Return the key of the sorted set of cancelled messages: message id -> time in epoch milliseconds."""
    return f"{namespace}::cancelled"


def cancellations_channel(namespace: str) -> str:
    """Return the channel on which the ids of cancelled messages are published to workers."""
    return f"{namespace}::cancelled"


def ended_channel(namespace: str, word: str) -> str:
    """Return the channel on which the ids of ended tasks are published to one process that waits for them."""
    return f"{namespace}::ended:{word}"


def checked_name(name: str) -> str:
    """Return `name`, or raise InvalidName when no RSMQ queue may have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"invalid queue name: {name!r}; use 1 to {MAX_NAME_LENGTH} characters of A-Z, a-z, 0-9, '_' and '-'"
        )
    if name in RESERVED_NAMES:
        raise InvalidName(f"reserved queue name: {name!r}; RSMQ itself uses the key of that name, choose another one")
    return name


def checked_namespace(namespace: str) -> str:
    """Return `namespace`, or raise InvalidName when its keys would be ambiguous."""
    if not isinstance(namespace, str) or not namespace or namespace.endswith(":") or "\0" in namespace:
        raise InvalidName(f"invalid namespace: {namespace!r}; use text without a colon at the end, for example 'rsmq'")
    return namespace
