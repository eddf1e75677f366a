"""The only module that runs calls: it sends scripts, loads missing ones, and converts errors of redis-py to ours.

A call is repeated only when that is harmless: nothing was sent, or the call has the same effect twice. All other
repeats are the decision of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar

import redis

from ..errors import (
    BrokenQueue,
    ConnectionFailed,
    DeadLetterQueueNotFound,
    InvalidName,
    InvalidValue,
    MessageTooLong,
    OutcomeUnknown,
    PermissionDenied,
    QueueFull,
    QueueNotFound,
    RedisFailure,
    RsmqError,
    ServerRefused,
    TopicBroken,
    without_claims,
)
from ..keys import TOPIC_PREFIX, checked_namespace, queues_key
from .call import RULES_PAGE, Call, commands_of_script, load_script
from .connection import Connection
from .packing import Command, Reply, Request, length_prefix, packed_words
from .topic_errors import topic_error
from .waits import WAITS, lesser, some_done

T = TypeVar("T")


class PreparedCall(Generic[T]):
    """A call of a script that is run often, each time with other last keys and arguments: the rest is packed once."""

    __slots__ = ("_args", "_keys", "call")

    def __init__(self, call: Call[T], *, open_keys: int, open_args: int) -> None:
        #: Without its last keys and arguments.
        self.call = call
        name, digest, key_count, *words = by_digest(call)
        count = 3 + len(words) + open_keys + open_args
        keys, args = words[: len(call.keys)], words[len(call.keys) :]
        self._keys = b"*%d\r\n%b" % (count, packed_words((name, digest, len(keys) + open_keys, *keys)))
        self._args = packed_words(args)

    def request(self, keys: Sequence[bytes], args: Sequence[bytes]) -> bytes:
        """Return the packed call with its last keys and arguments."""
        parts = [self._keys]
        for word in keys:
            parts += (length_prefix(len(word)), word)
        parts.append(self._args)
        for word in args:
            parts += (length_prefix(len(word)), word)
        parts.append(b"")
        return b"\r\n".join(parts)

    def whole(self, keys: Sequence[bytes], args: Sequence[bytes]) -> Call[T]:
        """Return the call with its last keys and arguments."""
        call, more = self.call, tuple(key.decode() for key in keys)
        return replace(call, keys=(*call.keys, *more), args=(*call.args, *args))


class Client:
    """Runs calls on one connection, in one namespace."""

    def __init__(self, connection: Connection, *, namespace: str = "rsmq") -> None:
        self.connection = connection
        self.namespace = checked_namespace(namespace)
        #: Scripts that this process has loaded and that the server still has, as far as is known.
        self._known_scripts: set[str] = set()
        if "{" in namespace:  # a hash tag: otherwise no script runs in a cluster
            connection.expect_cluster()

    def __repr__(self) -> str:
        return f"Client({self.connection!r}, namespace={self.namespace!r})"

    def run(self, call: Call[T]) -> T:
        """Run one call and return its result."""
        (reply,) = self._exchange([by_digest(call)], call.repeatable)
        return self._result(call, reply) if isinstance(reply, redis.RedisError) else call.read(reply)

    def run_prepared(self, prepared: PreparedCall[T], keys: Sequence[bytes], args: Sequence[bytes]) -> T:
        """Run a prepared call with its last keys and arguments; does what run() does with the whole call."""
        (reply,) = self._exchange([prepared.request(keys, args)], prepared.call.repeatable)
        if isinstance(reply, redis.RedisError):
            return self._result(prepared.whole(keys, args), reply)
        return prepared.call.read(reply)

    def _result(self, call: Call[T], reply: redis.RedisError) -> T:
        """Return the result of a call that the server refused, if it was only for its missing script."""
        if isinstance(reply, redis.exceptions.NoScriptError):  # nothing was carried out
            return raise_or_return(self.read_many([call], [reply])[0])
        raise as_our_error(call, reply)

    async def arun(self, call: Call[T]) -> T:
        """See run()."""
        (reply,) = await self._aexchange([by_digest(call)], call.repeatable)
        if isinstance(reply, redis.exceptions.NoScriptError):
            return raise_or_return((await self._aread_many([call], [reply]))[0])
        if isinstance(reply, redis.RedisError):
            raise as_our_error(call, reply)
        return call.read(reply)

    def run_many(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        """Run several calls in one round trip and return their results; a call that fails has its error in the list.

        Raises ConnectionFailed or OutcomeUnknown for all of them together.
        """
        loads = self.loads(calls)
        replies = self._exchange([*loads, *map(by_digest, calls)], _repeatable(calls))
        return self.read_many(calls, replies[len(loads) :])

    def run_many_on_one_node(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        """Do what run_many() does with repeatable calls of any namespaces, on the server of this connection only.

        A call fails whose keys are on another node, or whose script the server did not have.
        """
        try:
            return self._run_on_one_node(calls)
        except (ConnectionFailed, OutcomeUnknown) as error:
            self._known_scripts.clear()  # the server may have been started anew
            refuse_to_repeat(error, True)
        return self._run_on_one_node(calls)

    def _run_on_one_node(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        loads = self.loads(calls)
        replies = self.connection.exchange_with_one_node([*loads, *map(by_digest, calls)])
        return self.read_once(calls, replies[len(loads) :])

    def ask(self, commands: Sequence[Command]) -> list[Reply]:
        """Send plain read commands in one round trip and return the replies; errors of the server are among them."""
        return self._exchange(list(commands), True) if commands else []

    def go_to_keys(self) -> None:
        """Let commands without a key ask the node of a cluster that has the keys of this namespace; else do nothing.

        Otherwise they ask the node of the URL, which may be a replica, or have none of the keys.
        """
        if "{" in self.namespace:
            self.ask([("EVAL", "return 0", 1, queues_key(self.namespace))])

    def read_once(self, calls: Sequence[Call[T]], replies: Sequence[Reply]) -> list[T | RsmqError]:
        """Return results or errors for replies; calls whose scripts the server did not have fail, too."""
        self._unknown_scripts(calls, replies)
        return [read_reply(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def read_many(self, calls: Sequence[Call[T]], replies: list[Reply]) -> list[T | RsmqError]:
        """Return results or errors for replies, after a repeat of the calls whose scripts the server did not have."""
        for may_load in (True, False):
            unknown = self._unknown_scripts(calls, replies)
            if not unknown:
                break
            # None of these was carried out, so sending them again is safe.
            again = [calls[at] for at in unknown]
            loads = self.loads(again) if may_load else []
            with _the_others_known(len(calls) - len(unknown), len(calls)):
                late = self._exchange([*loads, *_commands(again, may_load)], _repeatable(calls))[len(loads) :]
            _replace(calls, replies, unknown, late)
        return [read_reply(call, reply) for call, reply in zip(calls, replies, strict=True)]

    async def arun_many(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        """See run_many()."""
        loads = self.loads(calls)
        replies = await self._aexchange([*loads, *map(by_digest, calls)], _repeatable(calls))
        return await self._aread_many(calls, replies[len(loads) :])

    async def _aread_many(self, calls: Sequence[Call[T]], replies: list[Reply]) -> list[T | RsmqError]:
        """See read_many()."""
        for may_load in (True, False):
            unknown = self._unknown_scripts(calls, replies)
            if not unknown:
                break
            again = [calls[at] for at in unknown]
            loads = self.loads(again) if may_load else []
            with _the_others_known(len(calls) - len(unknown), len(calls)):
                answers = await self._aexchange([*loads, *_commands(again, may_load)], _repeatable(calls))
            late = answers[len(loads) :]
            _replace(calls, replies, unknown, late)
        return [read_reply(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def loads(self, calls: Sequence[Call[Any]]) -> list[Command]:
        """Return the commands that load the scripts which the server may not have, so that no call is refused.

        They are sent before the calls: otherwise a page about 200 queues would be refused 200 times by a server that
        was just started. Servers keep loaded scripts, but evict scripts that came with EVAL from any client, the oldest
        of five hundred first (Redis 7.4, Valkey 8).
        """
        known = self._known_scripts
        new = [call.script for call in calls if call.script not in known]
        if not new:
            return []
        known.update(new)
        scripts = [name for name in dict.fromkeys(new) if not name.isupper()]
        return [("SCRIPT", "LOAD", load_script(name).source) for name in scripts]

    def _unknown_scripts(self, calls: Sequence[Call[Any]], replies: Sequence[Reply]) -> list[int]:
        """Return the positions of the calls whose scripts the server does not have; others may be missing, too.

        A wait for replicas is repeated with them: it was over before they wrote anything.
        """
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        if unknown:
            self._known_scripts.clear()
            unknown += [at for at, call in enumerate(calls) if call.script in WAITS]
        return unknown

    def _exchange(self, commands: Sequence[Request], repeatable: bool) -> list[Reply]:
        try:
            return self.connection.exchange(commands)
        except (ConnectionFailed, OutcomeUnknown) as error:
            self._known_scripts.clear()  # the server may have been started anew
            refuse_to_repeat(error, repeatable)
            first = error
        with _first_remembered(first):
            return _noting(first, self.connection.exchange(commands))

    async def _aexchange(self, commands: list[Command], repeatable: bool) -> list[Reply]:
        try:
            return await self.connection.aexchange(commands)
        except (ConnectionFailed, OutcomeUnknown) as error:
            self._known_scripts.clear()  # the server may have been started anew
            refuse_to_repeat(error, repeatable)
            first = error
        with _first_remembered(first):
            return _noting(first, await self.connection.aexchange(commands))


def _replace(calls: Sequence[Call[Any]], replies: list[Reply], places: Sequence[int], late: Sequence[Reply]) -> None:
    """Replace the replies to repeated calls. If others were carried out before, their wait counts, too."""
    done = some_done([call.script for call in calls], replies)
    for at, reply in zip(places, late, strict=True):
        replies[at] = lesser(replies[at], reply) if done and calls[at].script in WAITS else reply


def _is_error(reply: Reply) -> bool:
    return isinstance(reply, redis.RedisError)


@contextmanager
def _first_remembered(first: ConnectionFailed | OutcomeUnknown) -> Iterator[None]:
    """Raise the first error again when a repeat cannot connect: the first try may have been carried out."""
    try:
        yield
    except RedisFailure:
        if isinstance(first, OutcomeUnknown):
            raise first from first.__cause__
        raise


def _noting(first: ConnectionFailed | OutcomeUnknown, replies: list[Reply]) -> list[Reply]:
    """Return the replies to a repeat; error replies get a note that the reply to the first try was lost."""
    if isinstance(first, OutcomeUnknown):
        for reply in replies:
            if isinstance(reply, redis.RedisError):
                reply.lost_before = first  # type: ignore[attr-defined]
    return replies


@contextmanager
def _the_others_known(carried_out: int, count: int) -> Iterator[None]:
    """Raise OutcomeUnknown instead of an error that claims that nothing was done, when some calls were carried out."""
    try:
        yield
    except RedisFailure as error:
        if not carried_out or isinstance(error, OutcomeUnknown):
            raise
        why = without_claims(error)
        raise OutcomeUnknown(f"{carried_out} of {count} calls had been carried out; {why}") from error


def refuse_to_repeat(error: ConnectionFailed | OutcomeUnknown, repeatable: bool) -> None:
    """Raise `error` again unless one immediate repeat is harmless and could help.

    It does not help after a timeout: the caller has waited long enough, and a web request must not wait twice.
    """
    timed_out = isinstance(error.__cause__, (redis.TimeoutError, TimeoutError))
    if timed_out or (isinstance(error, OutcomeUnknown) and not repeatable):
        raise error


def by_digest(call: Call[Any]) -> Command:
    """Return the command of a call, which the server should have if it is a script."""
    if call.script.isupper():
        return (call.script, *call.keys, *call.args)
    return ("EVALSHA", load_script(call.script).sha1, len(call.keys), *call.keys, *call.args)


def by_source(call: Call[Any]) -> Command:
    """Return the command that runs a script; the server caches it for some time."""
    if call.script.isupper():
        return by_digest(call)
    return ("EVAL", load_script(call.script).source, len(call.keys), *call.keys, *call.args)


def _commands(calls: Sequence[Call[Any]], may_load: bool) -> list[Command]:
    """Return commands for calls whose scripts are loaded.

    They contain the source where the user may not load scripts, and where a node of the cluster answered that has not
    loaded them.
    """
    return [by_digest(call) if may_load else by_source(call) for call in calls]


def read_reply(call: Call[T], reply: Reply) -> T | RsmqError:
    """Return the result of a call for its reply, or one of our errors."""
    if isinstance(reply, redis.RedisError):
        return as_our_error(call, reply)
    return call.read(reply)


def raise_or_return(result: T | RsmqError) -> T:
    """Return the result of a call, or raise it if it is an error."""
    if isinstance(result, RsmqError):
        raise result
    return result


def _repeatable(calls: Sequence[Call[Any]]) -> bool:
    return all(call.repeatable for call in calls)


# -- Error replies ----------------------------------------------------------------------------------------------------

#: Our scripts answer "RSMQ <name> <words>"; Redis 7 and Valkey append the place in the script.
_OURS = re.compile(r"RSMQ (\w+) ?(.*?)(?: script: \w+, on .*)?$", re.S)
_DENIALS = (redis.exceptions.NoPermissionError, redis.AuthenticationError, redis.exceptions.AuthorizationError)
#: A command or key in quotes; Redis before 7.2 names neither, and its texts contain "can't".
_NAMED = re.compile(r"'\S+'")
#: Redis 6.2, Redis 7 and Valkey have different texts for the same refusal inside a script.
_DENIED = re.compile(
    r"NOPERM|NOAUTH|ACL failure|can't run this command|executing the script can't|no permissions", re.I
)
#: Where in a script an error occurred: Redis 6.2 puts it before the error, later servers and Valkey after it.
_PLACE = re.compile(
    r"(?:ERR )?Error running script \(call to \w+\): (?:@?\w+: ?\d+: )*-?| script: (?:\w+, )?on .*$", re.S
)
#: redis-py removes the first word from the text of these.
_REFUSALS = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
    redis.BusyLoadingError,
)
_OF_REPLICAS = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
_REPLICA = re.compile(r"READONLY|MASTERDOWN")
_REFUSED = re.compile(r"READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|BUSY|TRYAGAIN|NOREPLICAS", re.I)


def as_our_error(call: Call[Any], reply: redis.RedisError) -> RsmqError:
    """Return our error for an error reply of the server, with the reply as its cause."""
    error = _name_error(call, f"{getattr(reply, 'status_code', '') or ''} {reply}", reply)
    first = getattr(reply, "lost_before", None)
    if first is not None and isinstance(error, RedisFailure):  # it describes the repeat only
        error = OutcomeUnknown(f"{first}; the repeat was refused: {without_claims(error)}")
    if _kind_of_subject(call) == "queue":
        error.queue_name = call.subject
    error.__cause__ = reply
    return error


def without_place(text: str) -> str:
    """Return an error of the server without the place in a script, which tells an operator nothing."""
    return _PLACE.sub("", text).strip()


def _name_error(call: Call[Any], text: str, reply: redis.RedisError) -> RsmqError:
    ours = _OURS.search(text)
    if ours:
        return _script_error(call.subject, ours[1], ours[2].split())
    kind = _kind_of_subject(call)
    is_topic = kind == "topic"
    about = f"{kind} {call.subject!r}: " if call.subject else ""
    if isinstance(reply, redis.exceptions.OutOfMemoryError) or "OOM" in text:
        return QueueFull(
            f"{about}the server is at its memory limit, nothing was stored; drain queues or raise maxmemory"
        )
    if isinstance(reply, _DENIALS) or _DENIED.search(text):
        return PermissionDenied(f"{about}{_denied(call, without_place(text))}")
    if is_topic and ("CROSSSLOT" in text or "same slot" in text):
        name = call.subject.partition(":")[0]
        return InvalidName(f"topic {name!r}: on a cluster its keys must share a slot; name it {'{' + name + '}'!r}")
    if "WRONGTYPE" in text:
        return _broken_key(call, about, is_topic=is_topic)
    return _refusal(call, text, reply, about)


def _denied(call: Call[Any], text: str) -> str:
    """Return what the user may not do. Some servers name neither the command nor the key."""
    is_named = _NAMED.search(text) or call.script.isupper()
    commands = "" if is_named else f" It runs {', '.join(commands_of_script(call.script))}"
    keys = f" with {_named(call.keys)}" if call.keys and "key" in text else ""
    why = f"({text}){commands}{keys}"
    command = f"`rsmqctl acl ROLE{_acl_option(call, has_keys=bool(keys))}`"
    return f"the server's user may not run {call.script!r} {why}; {command} prints the rules of its role: {RULES_PAGE}"


def _acl_option(call: Call[Any], *, has_keys: bool) -> str:
    """Return the option of `rsmqctl acl` that adds the keys of a call."""
    if _kind_of_subject(call) == "topic":
        return f" --topic {call.subject.partition(':')[0]}" if call.subject else " --topic NAME"
    is_of_queue = call.script.startswith(("queue/", "tasks/enqueue"))
    return f" --queue {call.subject}" if has_keys and call.subject and is_of_queue else ""


def _kind_of_subject(call: Call[Any]) -> str:
    if call.script.startswith("topic/") or "".join(call.keys[:1]).startswith(TOPIC_PREFIX):
        return "topic"
    if call.script.startswith("tasks/schedule/") and call.script != "tasks/schedule/fire":
        return "schedule"
    return "queue"


def _broken_key(call: Call[Any], about: str, *, is_topic: bool) -> RsmqError:
    if not (about or is_topic):
        return BrokenQueue(
            f"{_named(call.keys)} has the wrong type; another program uses that name, delete or rename it"
        )
    kind = TopicBroken if is_topic else BrokenQueue
    return kind(f"{about}one of its keys has the wrong type; another program uses that name")


def _refusal(call: Call[Any], text: str, reply: redis.RedisError, about: str) -> RsmqError:
    if isinstance(reply, redis.exceptions.AskError):  # MOVED, too; its text is only the address
        return ServerRefused(
            f"{about}slot {reply.slot_id} of the cluster is at {reply.host}:{reply.port} or on its way there, which "
            "cannot be used now; nothing was changed, try again later"
        )
    if isinstance(reply, _OF_REPLICAS) or _REPLICA.search(text):
        return ServerRefused(
            f"{about}the server is a replica, which takes no writes ({without_place(text)}): the URL should name the "
            "primary, or its sentinels; nothing was changed, try again later if this is a failover"
        )
    if _REFUSED.search(text) or isinstance(reply, _REFUSALS):
        why = without_place(text)
        return ServerRefused(
            f"{about}the server cannot run the command now ({why}); nothing was changed, try again later"
        )
    return ServerRefused(f"{about}the server refused {call.script!r}: {text.strip()}")


def _named(keys: Sequence[str]) -> str:
    return f"key {keys[0]!r}" if len(keys) == 1 else f"one of the keys {', '.join(map(repr, keys[:5]))}"


def _script_error(subject: str, name: str, words: list[str]) -> RsmqError:
    if name == "QueueNotFound":
        return QueueNotFound(
            f"queue not found: {subject!r}; create it; if it existed, check for eviction, a flush or another database"
        )
    if name == "ReliableQueueNotFound":
        return QueueNotFound(
            f"reliable queue not found: {subject!r}; the first push creates it; if it existed, check for eviction, a "
            "flush or another database"
        )
    if name == "InvalidArgument":
        return InvalidValue(" ".join(words))
    if name == "DeadLetterQueueNotFound":
        return DeadLetterQueueNotFound(
            f"the dead-letter queue of queue {subject!r} does not exist; a worker creates it at its start"
        )
    if name == "MessageTooLong":
        size, limit, *named = words
        subject = named[0] if named else subject
        return MessageTooLong(
            f"body is {size} bytes, queue {subject!r} allows {limit}; raise its maximum size or store it elsewhere",
            size_bytes=int(size),
            limit_bytes=int(limit),
        )
    if name == "BrokenQueue":
        field, value = words[0], " ".join(words[1:])
        return BrokenQueue(
            f"queue {subject!r} has {field} = {value!r}, which is not a number; set its attributes again"
        )
    if name == "BrokenLock":
        return BrokenQueue(
            f"lock {' '.join(words)!r} of a unique call for queue {subject!r} is not a hash; another program uses "
            "that key: delete it, then calls are sent again"
        )
    return topic_error(subject, name, words) or _never(name)


def _never(name: str) -> NoReturn:
    raise AssertionError(f"unexpected error from a script: {name}")
