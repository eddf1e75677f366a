"""Versions of the server with known vulnerabilities that users who may run scripts can exploit.

A table of the upstream projects' advisories. Distributions fix their packages without changing the version, so a
hit is a reason to check, not a proof.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """One vulnerability: the first fixed version of each branch that was fixed, by flavour."""

    id: str
    what: str
    redis: tuple[Version, ...]
    valkey: tuple[Version, ...]
    since: Version = (0, 0, 0)


VULNERABILITIES = (
    Vulnerability(
        "CVE-2026-23479",
        "use after free when a blocked client is evicted",
        redis=((7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)),
        valkey=((7, 2, 13), (8, 0, 9), (8, 1, 7), (9, 0, 4), (9, 1, 0)),
        since=(7, 2, 0),
    ),
    Vulnerability(
        "CVE-2025-49844, -46817, -46818",
        "scripts can run code in the server, or as another user",
        redis=((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
        valkey=((7, 2, 11), (8, 0, 6), (8, 1, 4)),
    ),
    Vulnerability(
        "CVE-2024-46981",
        "scripts can misuse Lua's garbage collector to run code in the server",
        redis=((6, 2, 17), (7, 2, 7), (7, 4, 2)),
        valkey=((7, 2, 8), (8, 0, 2)),
    ),
    Vulnerability(
        "CVE-2024-31449, CVE-2024-31228",
        "scripts can overflow the stack, long patterns stop the server",
        redis=((6, 2, 16), (7, 2, 6), (7, 4, 1)),
        valkey=((7, 2, 7), (8, 0, 1)),
    ),
)


def parse_version(text: str) -> Version | None:
    """Return "7.0.15" as numbers, or None for a text that is not a version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def vulnerabilities_of(flavour: str, version: Version) -> list[Vulnerability]:
    """Return the vulnerabilities of a version; a branch that was never fixed stays vulnerable."""
    return [
        each
        for each in VULNERABILITIES
        if _is_open(each.valkey if flavour == "valkey" else each.redis, version, each.since)
    ]


def _is_open(fixed: tuple[Version, ...], version: Version, since: Version) -> bool:
    if version < since or version >= fixed[-1]:
        return False
    return not any(version[:2] == first[:2] and version >= first for first in fixed)
