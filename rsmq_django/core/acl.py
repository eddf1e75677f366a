"""The rights of the five roles of a server's users: rules of `ACL SETUSER`, made from the scripts and commands.

A role is a list of scripts and of plain commands. The commands of a script are those in its text, so a changed script
changes the rules. Servers check `EVALSHA` as a write to each of its keys, whatever the script does; so a role that only
reads has no command that writes, and its keys are not limited to reading. docs/how-to/acl.md has the rules for the
default namespace; `rsmqctl acl` prints them for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from .keys import checked_name, checked_namespace, queues_key, shard_namespace
from .topic.keys import DEAD_LETTER_SUFFIX, checked_topic
from .transport.call import commands_of_script

#: Commands of every connection. AUTH needs no right.
CONNECTING = "client|setinfo client|setname cluster|slots eval evalsha ping role script|load select"
#: Commands that change nothing.
READING = frozenset(
    "config|get dbsize exists get getrange hexists hget hgetall hkeys hlen hmget hscan hstrlen info lindex llen "
    "lpos lrange memory|usage mget pttl scan scard sismember smembers strlen time type xinfo|stream xlen "
    "xrange xread xrevrange zcard zcount zmscore zrange zrangebyscore zrevrange zscan zscore".split()
)

#: Commands in rules that old servers refuse, by release of Redis. Newer ones and Valkey know all.
UNKNOWN = {(6, 2): {"function|load", "waitaof"}, (7, 0): {"client|setinfo", "waitaof"}}


@dataclass(frozen=True, slots=True)
class Role:
    """What a user of the server is for."""

    purpose: str
    #: Names of scripts, with * for any part.
    scripts: tuple[str, ...]
    #: Commands that are sent as such.
    commands: str
    #: Patterns of channels after the namespace.
    channels: tuple[str, ...] = ()
    #: Whether it runs the doctor, which looks for queues whose keys are not quite in the namespace.
    is_doctor: bool = False
    #: Whether it has only the commands of its scripts that change nothing.
    is_reader: bool = False


_SENDING = (
    "queue/create",
    "queue/send",
    "reliable/push",
    "tasks/await_end",
    "tasks/enqueue",
    "tasks/enqueue_unique",
    "tasks/read_body",
    "tasks/schedule/list",
    "tasks/schedule/pause",
    "tasks/schedule/plan",
    "tasks/schedule/put",
    "tasks/schedule/remove",
    "tasks/tag",
    "tasks/unlock",
    "tasks/workflow/*",
    "topic/publish",
)
_SENDING_COMMANDS = "hgetall hscan hset sadd set subscribe unsubscribe wait waitaof"
_EVERYTHING = ("doctor/*", "queue/*", "reliable/*", "stats/*", "tasks/*", "topic/*")

ROLES = {
    "sender": Role(
        "web processes: enqueue tasks and workflows, send, push and publish, read results",
        _SENDING,
        _SENDING_COMMANDS,
        channels=(":rt:*", "::wake:*", "::ended:*"),
    ),
    "worker": Role(
        "rsmq_worker with its supervisor and relay",
        (
            *_SENDING,
            "queue/change_visibility",
            "queue/delete",
            "queue/moves/*",
            "queue/pause/*",
            "queue/receive",
            "queue/retry/*",
            "reliable/*",
            "stats/*",
            "tasks/*",
            "topic/*",
        ),
        f"{_SENDING_COMMANDS} blpop get hget info smembers time xread zmscore zrange zrem",
        channels=(":rt:*", "::wake:*", "::cancelled", "::ended:*"),
    ),
    "viewer": Role(
        "the admin for users who may only look, metrics, rsmq_stats, rsmq_doctor without --repair",
        _EVERYTHING,
        " ".join(READING),
        is_doctor=True,
        is_reader=True,
    ),
    "operator": Role(
        "the admin with all its actions, rsmqctl and the management commands",
        _EVERYTHING,
        f"{' '.join(READING)} {_SENDING_COMMANDS} blpop function|load zrem",
        is_doctor=True,
        channels=(":rt:*", "::wake:*", "::cancelled", "::ended:*"),
    ),
    "pipeline": Role(
        'rsmq_pipeline and Spark jobs with format("rsmq")',
        (
            "queue/attributes",
            "queue/browse/*",
            "queue/bulk/*",
            "queue/moves/*",
            "stats/*",
            "topic/identify",
            "topic/range",
            "topic/status",
        ),
        "config|get exists get hget hmget info lrange mget smembers srandmember time xlen xrange zcard zrange",
        channels=(":rt:*", "::wake:*"),
    ),
}


def rules(
    role: str,
    *,
    namespace: str = "rsmq",
    queues: Sequence[str] = (),
    topics: Sequence[str] = (),
    server_version: tuple[int, int] = (7, 2),
) -> list[tuple[str, ...]]:
    """Return the rules of a role in groups: state, keys, channels, commands.

    `queues` limits the keys of messages to these queues; keys that all queues share remain. `topics` adds topics, and
    the commands of their scripts. A server older than Redis 7.2 refuses rules with commands that it does not know.
    """
    chosen = ROLES[role]
    return [
        ("on", "resetkeys", "resetchannels", "-@all"),
        (
            *_key_rules(checked_namespace(namespace), queues),
            *(_doctor_rules(namespace) if chosen.is_doctor else ()),
            *_topic_rules(topics, namespace),
        ),
        tuple(f"&{_escaped(namespace)}{channel}" for channel in chosen.channels),
        tuple(
            f"+{command}"
            for command in commands_of(role, has_topics=bool(topics))
            if command not in UNKNOWN.get(server_version, ())
        ),
    ]


def commands_of(role: str, *, has_topics: bool = True) -> list[str]:
    """Return the commands of a role in alphabetical order; those of topics only if it has topics."""
    chosen = ROLES[role]
    names = [name for name in scripts_of(role) if has_topics or not name.startswith("topic/")]
    found = {command for name in names for command in commands_of_script(name)}
    found |= {*chosen.commands.split()}
    return sorted((found & READING if chosen.is_reader else found) | {*CONNECTING.split()})


def scripts_of(role: str) -> list[str]:
    """Return the names of the scripts of a role."""
    return [name for name in all_scripts() if any(fnmatchcase(name, each) for each in ROLES[role].scripts)]


@cache
def all_scripts() -> tuple[str, ...]:
    """Return the names of all scripts of the package, except those of its testing kit."""
    core = resources.files("rsmq_django.core")
    names = [
        "/".join((structure.name, *path))[: -len(".lua")]
        for structure in core.iterdir()
        if structure.name != "lua" and structure.is_dir()
        for path in _lua_files(structure.joinpath("lua"))
    ]
    return tuple(sorted(name for name in names if "testing" not in name.split("/")))


def _lua_files(folder: Any, *above: str) -> Iterator[tuple[str, ...]]:
    if not folder.is_dir():
        return
    for item in folder.iterdir():
        if item.is_dir() and item.name != "parts":
            yield from _lua_files(item, *above, item.name)
        elif item.name.endswith(".lua"):
            yield (*above, item.name)


def _key_rules(namespace: str, queues: Sequence[str]) -> list[str]:
    before = _escaped(namespace)
    if not queues:
        return [f"~{before}:*"]
    names = [checked_name(name) for name in queues]
    shared = [f"~{before}:QUEUES", f"~{before}::*"]
    # A queue, its attributes, its priority bands and lanes, and its dead-letter queue.
    return [*shared, *(f"~{before}:{name}{end}" for name in names for end in ("", ":Q", "-*"))]


def _doctor_rules(namespace: str) -> list[str]:
    """Return rules for the list of a namespace that was given without its colon, and for that of shard 1."""
    return [f"~{_escaped(key)}" for key in (f"{namespace}QUEUES", queues_key(shard_namespace(namespace, 1)))]


def _topic_rules(topics: Sequence[str], namespace: str) -> list[str]:
    if not topics:
        return []
    names = [_escaped(checked_topic(name, namespace=namespace)) for name in topics]
    with_dead = [f"{name}{end}" for name in names for end in ("", DEAD_LETTER_SUFFIX)]
    return [*(f"~{before}{name}:*" for before in ("", "rsmqt:") for name in with_dead), "~rsmqt::topics"]


def _escaped(text: str) -> str:
    """Return a text as a pattern that matches only itself."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
