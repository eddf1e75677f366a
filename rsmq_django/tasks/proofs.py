"""Proofs that data in Redis was written by a process with a queue's keys: HMAC-SHA256, as hex digits.

The signed text consists of words separated by a zero byte, which only the last can contain:

    rsmq-2 \\0 kind \\0 namespace \\0 queue \\0 word \\0 ... \\0 content

The kind prevents that a proof is used for data of another kind: "message" (sealing.py), "schedule" and "tick"
(schedule.py), "argument" and "members" (workflow_proofs.py), "result" (results.py), "cancelled" (sealing.py: the record
of a cancelled call). Namespace and queue prevent its use in another queue. The first key signs, all of them verify. A
proof shows who wrote the data; it does not show when, or how often.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..conf.settings import QueueSettings, get_settings
from ..queues import get_client

VERSION = "rsmq-2"


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of one signed or encrypted queue, in its namespace."""

    namespace: str
    #: The configured queue; its priority bands and lanes share its keys.
    queue_name: str
    keys: tuple[str, ...]

    def prove(self, kind: str, *words: str, content: bytes = b"") -> str:
        """Return the proof of some words and a content. The words must not contain a zero byte."""
        return _digest(self.keys[0], self._signed(kind, words, content))

    def verifies(self, proof: str, kind: str, *words: str, content: bytes = b"") -> bool:
        """Return whether this proof was made with one of the keys."""
        if any("\0" in word for word in words):
            return False  # no proof has such a word
        # In constant time, which reveals nothing about the right proof. As bytes, because compare_digest() takes no
        # text beyond ASCII.
        given, signed = proof.encode("utf-8", "surrogatepass"), self._signed(kind, words, content)
        return any(hmac.compare_digest(_digest(key, signed).encode(), given) for key in self.keys)

    def _signed(self, kind: str, words: Sequence[str], content: bytes) -> bytes:
        parts = (VERSION, kind, self.namespace, self.queue_name, *words)
        assert not any("\0" in part for part in parts)
        return "\0".join(parts).encode("utf-8", "surrogatepass") + b"\0" + content


def keyring(queue: QueueSettings, *, name: str, namespace: str) -> Keyring:
    """Return the keys of a sealed queue; `name` is that of the configured queue."""
    return Keyring(namespace, name, queue.signing_keys or queue.encryption_keys)


def keyring_of(queue_name: str) -> Keyring | None:
    """Return the keys of a queue, or of the queue whose band or lane this is; None for a queue without keys."""
    settings = get_settings()
    if not settings.is_sealed(queue_name):
        return None
    queue = settings.queue(queue_name)
    return keyring(queue, name=settings.base_name(queue_name), namespace=get_client(queue.connection).namespace)


def accepts_old(queue: QueueSettings) -> bool:
    """Return whether this queue still accepts signatures without the namespace."""
    until = queue.old_signatures_until
    return until is not None and _today() <= until


def writes_proofs(queue_name: str) -> bool:
    """Return whether results and workflow values of this sealed queue are stored with proofs.

    Workers of a release without proofs accept plain values only. They may run until the day before the last one on
    which their signatures are accepted; values that are read after that day have a proof.
    """
    until = get_settings().queue(queue_name).old_signatures_until
    return until is None or _today() >= until


def owner_of(queue_name: str) -> str:
    """Return "@" and the queue if members of workflows on it may be settled from it only; "" for one without keys.

    Also "" as long as workers of an older release may run, which could not settle such a member.
    """
    settings = get_settings()
    if not settings.is_sealed(queue_name) or accepts_old(settings.queue(queue_name)):
        return ""
    return f"@{settings.base_name(queue_name)}"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _digest(key: str, signed: bytes) -> str:
    return hmac.new(key.encode(), signed, "sha256").hexdigest()
