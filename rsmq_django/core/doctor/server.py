"""Findings about the server: eviction, persistence, vulnerabilities, its role and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ..queue.replies import read_message_id
from .catalogue import found
from .finding import Finding, Severity
from .probe import SERVER, Probe
from .versions import Version, parse_version, vulnerabilities_of

OLDEST_SERVER: Version = (6, 2, 0)
#: Above this share of its memory limit the server is reported.
FULL_FROM = 0.9
CLOCK_TOLERANCE_S = 5.0

Info = dict[str, str]
#: Command that asks how many good replicas the server needs to accept writes.
ASK_FOR_MINIMUM = ("CONFIG", "GET", "min-replicas-to-write")


def examine_server(probe: Probe) -> Iterator[Finding]:
    """Yield the findings about the server, as far as its user may read them."""
    info = _read_info(probe)
    yield from _check_version(info)
    yield from _check_role(info)
    yield from _check_replicas(probe, info)
    yield from _check_memory(info)
    yield from _check_persistence(probe, info)
    yield from _check_clock(probe)


def _read_info(probe: Probe) -> Info:
    reply = probe.ask("INFO", about="version, memory and persistence of the server")
    return read_info(reply or b"")


def read_info(reply: bytes) -> Info:
    """Return the fields of a reply to INFO."""
    lines = read_message_id(reply).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _check_version(info: Info) -> Iterator[Finding]:
    # Every version of Valkey reports redis_version 7.2.4.
    flavour = "valkey" if "valkey_version" in info else "redis"
    text = info.get(f"{flavour}_version", "")
    version = parse_version(text)
    if version is None:
        return
    named = f"{flavour.capitalize()} {text}"
    if version < OLDEST_SERVER:
        yield found("old-server", SERVER, f"the server is {named}")
    for known in vulnerabilities_of(flavour, version):
        yield found("known-vulnerability", SERVER, f"{named} has {known.id}: {known.what}; update it")


def _check_role(info: Info) -> Iterator[Finding]:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        yield found("replica", SERVER, f"the server is a replica of {primary}; connect to the primary")


def _check_replicas(probe: Probe, info: Info) -> Iterator[Finding]:
    if "min_slaves_good_slaves" in info:
        reply = probe.ask(*ASK_FOR_MINIMUM, about="how many replicas the server needs to accept writes")
        if why := why_writes_are_refused(info, reply):
            yield found("writes-refused", SERVER, why)


def why_writes_are_refused(info: Info, minimum: Any) -> str:
    """Return why a primary with too few replicas refuses writes; "" if it does not.

    `minimum` is the reply to ASK_FOR_MINIMUM, or anything else if the server's user may not ask.
    """
    if info.get("role") != "master" or "min_slaves_good_slaves" not in info:
        return ""
    good, needed = int(info["min_slaves_good_slaves"]), 1
    is_known = isinstance(minimum, list) and len(minimum) == 2
    if is_known:
        needed = int(minimum[1])
    if good >= needed:
        return ""
    are = "good replica is" if good == 1 else "good replicas are"
    least = f"{needed}" if is_known else f"at least {needed}"
    return f"the server refuses every write: min-replicas-to-write is {least}, and {good} {are} connected"


def _check_memory(info: Info) -> Iterator[Finding]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        said = f"maxmemory-policy is {policy}, the memory limit {limit or 'not set'}"
        # Without a limit nothing is evicted; a limit may be set later.
        yield found("evicting-policy", SERVER, said, severity=Severity.ERROR if limit else None)
    if evicted := int(info.get("evicted_keys", 0)):
        severity = Severity.ERROR if policy.startswith("allkeys") else None
        yield found("evicted-keys", SERVER, f"it has evicted {evicted} keys since its start", severity=severity)
    if limit and used > FULL_FROM * limit:
        yield found("memory-almost-full", SERVER, f"{used} of {limit} bytes are used")


def _check_persistence(probe: Probe, info: Info) -> Iterator[Finding]:
    if info.get("aof_enabled") == "0":
        reply = probe.ask("CONFIG", "GET", "save", about="whether the server writes snapshots")
        if reply is not None and len(reply) == 2 and not reply[1]:
            yield found("no-persistence", SERVER, "the server has neither an append-only file nor snapshots")
    for field in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"):
        if info.get(field, "ok") != "ok":
            yield found("persistence-failing", SERVER, f"{field} is {info[field]!r}; check its disk and its log")


def _check_clock(probe: Probe) -> Iterator[Finding]:
    before = time.time()
    reply = probe.ask("TIME", about="the server's clock")
    if reply is None:
        return
    server_s, middle = int(reply[0]) + int(reply[1]) / 1e6, (before + time.time()) / 2
    if abs(server_s - middle) > CLOCK_TOLERANCE_S:
        ahead = "ahead of" if server_s > middle else "behind"
        yield found(
            "clock-differs", SERVER, f"the server's clock is {abs(server_s - middle):.0f} s {ahead} the local clock"
        )
