"""Prepared calls: checked, encoded and sealed before anything is sent, so that errors are raised in the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Queue
from ..core.errors import MessageTooLong
from ..core.ids import random_suffix
from ..core.keys import result_key
from ..core.limits import MAX_BODY_BYTES
from ..core.queue.replies import read_ids
from ..core.tasks.workflows import MemberBatch
from ..core.transport.call import Argument, Call
from ..queues import get_client
from .envelope import encode, encode_plain
from .lanes import lane_of_call
from .middleware import SentCall, chain
from .proofs import owner_of
from .results import UNFINISHED_TTL_S
from .route import Destination, route_of, route_to_shard
from .sealing import seal
from .shards import id_in_shard, shard_of_call
from .task import Arguments, Task
from .tracing import SendSpan, carried_by, start_sending
from .typed_arguments import as_sent
from .unique import UniqueCall


@dataclass(slots=True)  # not frozen, which would cost a microsecond for each call
class Outgoing:
    """Prepared calls of one task, never changed: ids and bodies, in order."""

    route: Destination
    ids: list[str]
    #: The encoded calls.
    written: list[bytes]
    #: The bodies to send: the same, unless the queue's messages are sealed.
    bodies: list[bytes]
    #: The unique key of each call; empty for tasks that are not unique.
    digests: Sequence[str] = ()
    #: The span of the send; None without tracing.
    span: SendSpan | None = None
    #: Whether they are members of a workflow.
    are_members: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether it is a single call that can be sent together with others."""
        return len(self.ids) == 1 and not self.digests and self.span is None

    @property
    def size_bytes(self) -> int:
        """Return the size of all bodies together."""
        return sum(map(len, self.bodies))

    @property
    def task(self) -> Task[..., Any]:
        """Return the task of the calls."""
        return self.route.task

    @property
    def queue(self) -> Queue:
        """Return the queue, band or lane that will store them."""
        return self.route.queue

    def unique_call(self, number: int) -> UniqueCall:
        """Return one call of a unique task."""
        unique, queue = self.task.options.unique, self.queue
        assert unique is not None
        return UniqueCall(
            unique=unique,
            namespace=queue.client.namespace,
            queue_name=queue.name,
            keys=queue.keys,
            channel=self.route.channel,
            delay=self.route.delay_ms(),
            digest=self.digests[number],
            task_id=self.ids[number],
            body=self.bodies[number],
            unfinished_ttl_s=UNFINISHED_TTL_S,
            keeps_result=self.route.keeps_result,
            is_member=self.are_members,
            tags=self.task.options.tags,
        )

    def batch(self, numbers: Mapping[str, int]) -> MemberBatch:
        """Return the calls as members of a workflow, with their numbers by task id."""
        calls = [(numbers[task_id], task_id, body) for task_id, body in zip(self.ids, self.bodies, strict=True)]
        record_ttl_s = UNFINISHED_TTL_S if self.route.keeps_result else 0
        owner = owner_of(self.queue.name) if self.route.settings.is_sealed else ""
        return MemberBatch(self.queue.name, self.route.channel, self.route.delay_ms(), record_ttl_s, calls, owner)

    def call(self) -> Call[list[str]]:
        """Return the Redis call that sends them, and returns the ids of their messages.

        A delay counts from now, the moment of sending.
        """
        route, queue = self.route, self.route.queue
        args: list[Argument] = [route.delay_ms(), route.channel, UNFINISHED_TTL_S, queue.name]
        for task_id, body in zip(self.ids, self.bodies, strict=True):
            args += (task_id, body)
        keys = [queue.keys.messages, queue.keys.settings, route.waiting_key]
        if route.keeps_result:
            keys += [result_key(queue.client.namespace, task_id) for task_id in self.ids]
        return Call("tasks/enqueue", tuple(keys), tuple(args), read_ids, subject=queue.name)


def prepare_one(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outgoing:
    """Do what prepare() does for one call. Only id and arguments of a plain call are encoded anew."""
    route = route_of(task)
    if not route.is_plain:
        args, kwargs = as_sent(task, args, kwargs)
        lane = lane_of_call(task, args, kwargs)
        shard = None if route.shard is None else shard_of_call(task, args, kwargs)
        return prepare(task, [(args, kwargs)], ids=[id_in_shard(random_suffix(), shard)], lane=lane, shard=shard)
    task_id = random_suffix()
    body = encode_plain(route.body_head, route.path, task_id, args, kwargs)
    bodies = [body]
    if len(body) > route.safe_size_bytes:
        _check_size(bodies, route)
    return Outgoing(route, [task_id], bodies, bodies)


def prepare(
    task: Task[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    ids: Sequence[str],
    said: Sequence[Mapping[str, Any]] = (),
    lane: int | None = None,
    shard: int | None = None,
) -> Outgoing:
    """Check and encode calls of a task with these ids; `said` is additional meta of each call.

    All of them go to one lane, and to one shard: without a number, to the first one of a queue with shards.
    """
    route = route_of(task, lane) if shard is None else route_to_shard(task, lane, shard)
    settings, ids = route.settings, list(ids)
    if route.is_plain and not said:
        head, path = route.body_head, route.path
        plain = [encode_plain(head, path, task_id, *call) for task_id, call in zip(ids, calls, strict=True)]
        _check_size(plain, route)
        return Outgoing(route, ids, plain, plain)
    span = start_sending(route.queue, route.path, ids)
    digests = _digests(route, calls)
    middleware = chain()
    sent = None if middleware is None else middleware.sending(route.path, route.task.queue_name, ids)
    metas = _metas(_common_meta(route, span, sent), digests, said, len(calls))
    written = [
        encode(route.path, task_id, args, kwargs, meta)
        for task_id, (args, kwargs), meta in zip(ids, calls, metas, strict=True)
    ]
    bodies = _sealed(written, route) if settings.is_sealed else written
    _check_size(bodies, route)
    if middleware is not None and sent is not None:
        middleware.encoded(sent, bodies)
    return Outgoing(route, ids, written, bodies, digests, span)


def _sealed(written: Sequence[bytes], route: Destination) -> list[bytes]:
    # That of the first shard: a message that is moved to another one stays valid.
    settings, namespace = route.settings, get_client(route.settings.connection).namespace
    return [seal(body, settings, name=settings.name, namespace=namespace) for body in written]


def _check_size(bodies: Sequence[bytes], route: Destination) -> None:
    longest, limit = max(map(len, bodies), default=0), route.settings.max_size_bytes
    if limit < 0:
        limit = MAX_BODY_BYTES
    if limit < longest:
        # After the commit, it would be too late for an error in the caller.
        raise MessageTooLong(
            f"a call of {route.path} is {longest} bytes, queue {route.queue.name!r} allows {limit}; "
            "store what it works on elsewhere and pass its id",
            queue_name=route.queue.name,
            size_bytes=longest,
            limit_bytes=limit,
        )


def _digests(route: Destination, calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[str]:
    task, unique = route.task, route.task.options.unique
    if unique is None:
        return []
    takes_context = task.takes_context
    return [unique.digest(task.func, route.path, args, kwargs, takes_context=takes_context) for args, kwargs in calls]


def _common_meta(route: Destination, span: SendSpan | None, sent: SentCall | None) -> dict[str, Any]:
    """Return the metadata of tracing, the project's middleware and the task's options for all calls."""
    meta = carried_by(span)
    options = route.task.options
    if sent is not None and sent.context:
        meta["context"] = sent.context
    if options.expires_in_s is not None:
        meta["expires_in_s"] = options.expires_in_s
    if route.max_attempts is not None:
        meta["max_attempts"] = route.max_attempts
    if options.tags:
        meta["tags"] = list(options.tags)
    return meta


def _metas(
    common: Mapping[str, Any], digests: Sequence[str], said: Sequence[Mapping[str, Any]], count: int
) -> Sequence[Mapping[str, Any]]:
    """Return the metadata of each call: the common part, its digest, and its own part."""
    if not digests and not said:
        return [common] * count
    own = [{"unique": digest} for digest in digests] or [{}] * count
    return [{**common, **mine, **more} for mine, more in zip(own, said or [{}] * count, strict=True)]


def split_arguments(call: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and keyword arguments of one call of enqueue_many()."""
    if type(call) is list or type(call) is tuple:  # most are; a check with the abstract classes takes a microsecond
        return call, {}
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, Sequence) and not isinstance(call, (str, bytes)):
        return call, {}
    raise TypeError(f"a call is a dictionary of keyword arguments or a list of positional ones, not {call!r}")
