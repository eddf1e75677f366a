"""Finds all queues: the listed ones, and unlisted ones by their keys.

The only part that scans the server's keys. It does so with SCAN, in slices, so that no other client waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..keys import queues_key
from ..queue.replies import read_message_id
from .catalogue import found
from .finding import Finding, Progress
from .probe import Probe

#: Keys that the server scans for one reply.
KEYS_AT_A_TIME = 1000
#: Above this number a scan of all keys takes seconds: only a deep examination does it.
MANY_KEYS = 2_000_000
#: Matches `dead:`, `phantoms:` and `released:` after `{ns}::`, but not `result:`, of which there may be a million.
SIDE_PATTERN = "[dpr][ehe][al]*:*"
SIDE_KINDS = ("dead", "phantoms", "released")


@dataclass(slots=True)
class Survey:
    """Names of queues, by how they were found."""

    listed: set[str] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)
    #: Names of keys that may contain the messages of a queue, or data of another program.
    others: set[str] = field(default_factory=set)
    rbmq: set[str] = field(default_factory=set)
    #: Queues for which our side data exists.
    noted: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return every name that may belong to a queue, sorted."""
        return sorted(self.listed | self.hashes | self.others)


def survey(probe: Probe, *, deep: bool, progress: Progress) -> Survey:
    """Return the names of all queues, with findings about the search itself."""
    result = Survey()
    _read_list(probe, result)
    _look_for_keys_without_colon(probe, result)
    total = probe.ask("DBSIZE", about="how many keys there are")
    if isinstance(total, int) and total > MANY_KEYS and not deep:
        said = f"the server has {total} keys, more than {MANY_KEYS}; only a deep examination scans them"
        result.findings.append(found("not-scanned", "server", said))
        return result
    namespace = probe.client.namespace
    escaped = escape_pattern(namespace)
    for key in _scan(probe, f"{escaped}:[^:]*", total, progress):
        _classify(result, key.removeprefix(f"{namespace}:"))
    for key in _scan(probe, f"{escaped}::{SIDE_PATTERN}", total, progress):
        kind, _, name = key.removeprefix(f"{namespace}::").partition(":")
        if kind in SIDE_KINDS:
            result.noted.add(name)
    return result


def escape_pattern(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


def _read_list(probe: Probe, result: Survey) -> None:
    key = queues_key(probe.client.namespace)
    kind = probe.ask("TYPE", key, about="the list of queues")
    if kind == b"set":
        names = probe.ask("SMEMBERS", key, about="the list of queues") or ()
        result.listed = set(map(read_message_id, names))
    elif kind not in (None, b"none"):
        said = f"the list of queues is a {read_message_id(kind)}, but should be a set"
        result.findings.append(found("wrong-type", key, said))


def _look_for_keys_without_colon(probe: Probe, result: Survey) -> None:
    key = f"{probe.client.namespace}QUEUES"
    # A user with rights to the keys of this namespace only may not read that key. That is not a finding.
    if probe.ask("TYPE", key, about=None) == b"set":
        result.findings.append(found("keys-without-colon", key, "there is a list of queues without a colon in its key"))


def _scan(probe: Probe, pattern: str, total: int | None, progress: Progress) -> Iterator[str]:
    cursor, done = "0", 0
    while True:
        reply = probe.ask(
            "SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_AT_A_TIME, about="queues that are not on the list"
        )
        if reply is None:
            return
        cursor, done = reply[0].decode(), done + KEYS_AT_A_TIME
        yield from map(read_message_id, reply[1])
        if cursor == "0":
            return
        progress("keys", done, total)


def _classify(result: Survey, rest: str) -> None:
    name, colon, suffix = rest.partition(":")
    if not colon:
        if name != "QUEUES":
            result.others.add(name)
    elif suffix == "Q":
        result.hashes.add(name)
    elif suffix == "cfg":
        result.rbmq.add(name)
    # Other keys with a colon belong to another namespace, for example to "rsmq:test".
