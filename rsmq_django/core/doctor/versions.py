"""Which versions of the server have known holes that matter to whoever lets others run scripts.

A table of the upstream projects' advisories. Distributions mend their packages without changing the version, so
a hit is a reason to ask, not a verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Hole:
    """One vulnerability: the first mended version of each branch that was mended, by flavour."""

    id: str
    what: str
    redis: tuple[Version, ...]
    valkey: tuple[Version, ...]
    since: Version = (0, 0, 0)


HOLES = (
    Hole(
        "CVE-2026-23479",
        "use after free when a blocked client is evicted",
        redis=((7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)),
        valkey=((7, 2, 13), (8, 0, 9), (8, 1, 7), (9, 0, 4), (9, 1, 0)),
        since=(7, 2, 0),
    ),
    Hole(
        "CVE-2025-49844, -46817, -46818",
        "scripts can run code in the server, or as another user",
        redis=((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
        valkey=((7, 2, 11), (8, 0, 6), (8, 1, 4)),
    ),
    Hole(
        "CVE-2024-46981",
        "scripts can misuse Lua's garbage collector to run code in the server",
        redis=((6, 2, 17), (7, 2, 7), (7, 4, 2)),
        valkey=((7, 2, 8), (8, 0, 2)),
    ),
    Hole(
        "CVE-2024-31449, CVE-2024-31228",
        "scripts can overflow the stack, long patterns stop the server",
        redis=((6, 2, 16), (7, 2, 6), (7, 4, 1)),
        valkey=((7, 2, 7), (8, 0, 1)),
    ),
)


def parse_version(text: str) -> Version | None:
    """Return "7.0.15" as numbers, or None for what is no version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def holes_of(flavour: str, version: Version) -> list[Hole]:
    """Return the vulnerabilities of a version; a branch that was never mended keeps its holes."""
    return [hole for hole in HOLES if _is_open(hole.valkey if flavour == "valkey" else hole.redis, version, hole.since)]


def _is_open(mended: tuple[Version, ...], version: Version, since: Version) -> bool:
    if version < since or version >= mended[-1]:
        return False
    return not any(version[:2] == first[:2] and version >= first for first in mended)
