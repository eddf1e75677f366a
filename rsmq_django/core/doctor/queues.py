"""Findings about a queue as a whole: its keys, its name, its attributes and its scores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ..errors import InvalidName
from ..ids import sent_ms
from ..keys import checked_name
from ..limits import MAX_MAX_SIZE_BYTES, MAX_SECONDS, MIN_MAX_SIZE_BYTES, UNLIMITED
from .calls import Facts
from .catalogue import found
from .finding import ExpectedQueue, Finding, Severity

NEEDED = ("vt", "delay", "maxsize")
#: `{ns}:QUEUES` is the list of queues: a queue of this name has no key for its messages.
UNUSABLE_NAME = "QUEUES"
COUNTERS = ("totalrecv", "totalsent")
#: Whole thousands from this value on, 30000 for example, may be seconds or milliseconds.
PERHAPS_MILLISECONDS_FROM = 10_000


def is_queue(facts: Facts, *, is_listed: bool) -> bool:
    """Return whether the keys belong to a queue and not to another program."""
    # The ids contain a time: a sorted set of another program must not be taken for the index of a deleted queue.
    looks_like_one = facts.has_index and all(sent_ms(one) is not None for one in facts.first_ids)
    return is_listed or facts.has_hash or looks_like_one


def examine_queue(name: str, facts: Facts, *, is_listed: bool) -> Iterator[Finding]:
    """Yield the findings about the keys, the name and the scores of a queue."""
    yield from _check_name(name)
    broken = list(_check_types(name, facts))
    yield from broken or _check_existence(name, facts, is_listed=is_listed)
    if facts.expires_ms is not None:
        yield found("expiring", name, f"its keys expire in {facts.expires_ms / 1000:.0f} s")
    yield from _check_scores(name, facts)
    if facts.phantoms_removed:
        said = f"{facts.phantoms_removed} ids without a body have been removed so far"
        yield found("phantoms-removed", name, said, examples=[facts.last_phantom.partition(" ")[2]])


def _check_name(name: str) -> Iterator[Finding]:
    if name == UNUSABLE_NAME:
        yield found("reserved-name", name, "another client created a queue of this name")
        return
    try:
        checked_name(name)
    except InvalidName as error:
        yield found("foreign-name", name, str(error))


def _check_types(name: str, facts: Facts) -> Iterator[Finding]:
    index_type = "none" if name == UNUSABLE_NAME else facts.index_type
    for what, kind, wanted in (("its messages", index_type, "zset"), ("its attributes", facts.hash_type, "hash")):
        if kind not in ("none", wanted):
            yield found("wrong-type", name, f"the key of {what} is a {kind}, but should be a {wanted}")


def _check_existence(name: str, facts: Facts, *, is_listed: bool) -> Iterator[Finding]:
    missing = [attribute for attribute in NEEDED if attribute not in facts.attributes]
    if not facts.has_hash and not facts.has_index:
        if is_listed and name != UNUSABLE_NAME:
            yield found("missing-queue", name, "it is on the list, but has no keys")
    elif not facts.has_hash and not is_listed:
        said = f"{facts.messages} ids without a body, and no queue"
        yield found("stray-index", name, said, examples=facts.first_ids)
    elif len(missing) == len(NEEDED):
        said = f"it has {facts.messages} messages, but none of the attributes of a queue"
        yield found("ghost", name, said, examples=facts.first_ids)
    elif missing:
        yield found("half-created", name, f"it lacks {', '.join(missing)}")
    elif not is_listed:
        yield found("unlisted", name, f"it has {facts.messages} messages, but is not on the list of queues")


def _check_scores(name: str, facts: Facts) -> Iterator[Finding]:
    for kind, count in (
        ("scores-in-seconds", facts.scores_in_seconds),
        ("scores-in-microseconds", facts.scores_in_microseconds),
        ("far-future", facts.scores_too_late),
    ):
        if count:
            yield found(kind, name, f"{count} of {facts.messages} messages")


# -- Attributes -------------------------------------------------------------------------------------------------------


def number(text: str | None) -> float | None:
    """Return an attribute as a number, or None when no client could use it as a number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= UNLIMITED else None


def broken_attributes(facts: Facts) -> dict[str, str]:
    """Return the attributes and counters that exist but are not numbers, with their texts."""
    stored = {name: facts.attributes[name] for name in (*NEEDED, *COUNTERS) if name in facts.attributes}
    return {name: text for name, text in stored.items() if not _is_usable(name, number(text))}


def fractional_attributes(facts: Facts) -> dict[str, str]:
    """Return visibility timeout and delay if they are not whole numbers, with their texts."""
    stored = {name: facts.attributes[name] for name in ("vt", "delay") if name in facts.attributes}
    return {name: text for name, text in stored.items() if (value := number(text)) is not None and value % 1}


def _is_usable(name: str, value: float | None) -> bool:
    if value is None:
        return False
    return value >= 0 or (name == "maxsize" and value == UNLIMITED)


def examine_attributes(name: str, facts: Facts, expected: ExpectedQueue | None) -> Iterator[Finding]:
    """Yield the findings about a queue's attributes: broken values, and differences from the caller's settings."""
    for kind, odd in (("broken-attribute", broken_attributes), ("fractional-attribute", fractional_attributes)):
        if texts := odd(facts):
            said = ", ".join(f"{attribute} is {text!r}" for attribute, text in texts.items())
            yield found(kind, name, said, examples=texts)
    unit = expected.vt_unit if expected else "s"
    if unit == "s":
        yield from _check_unit(name, facts)
    yield from _check_foreign_forms(name, facts)
    if expected is not None:
        yield from _compare(name, facts, expected)


def _check_unit(name: str, facts: Facts) -> Iterator[Finding]:
    for attribute in ("vt", "delay"):
        value = number(facts.attributes.get(attribute)) or 0
        said = f"{attribute} is {value:.0f}"
        if value > MAX_SECONDS:
            yield found("milliseconds", name, f"{said}, more than the {MAX_SECONDS} s that RSMQ allows")
        elif value >= PERHAPS_MILLISECONDS_FROM and value % 1000 == 0:
            yield found(
                "perhaps-milliseconds", name, f"{said}: {value / 3600:.1f} hours or {value / 1000:.0f} seconds?"
            )


def _check_foreign_forms(name: str, facts: Facts) -> Iterator[Finding]:
    if not facts.attributes:
        return
    odd = []
    for attribute in ("created", "modified"):
        text = facts.attributes.get(attribute)
        if text is None or not re.fullmatch(r"\d{1,11}", text, re.ASCII):
            odd.append(f"{attribute} is {text!r}" if text is not None else f"{attribute} is missing")
    max_size = number(facts.attributes.get("maxsize"))
    if max_size is not None and max_size != UNLIMITED and not MIN_MAX_SIZE_BYTES <= max_size <= MAX_MAX_SIZE_BYTES:
        odd.append(f"maxsize is {max_size:g}")
    if odd:
        yield found("foreign-attributes", name, ", ".join(odd))


def _compare(name: str, facts: Facts, expected: ExpectedQueue) -> Iterator[Finding]:
    for attribute, wanted in expected.stored.items():
        stored = number(facts.attributes.get(attribute))
        if stored is None or stored == wanted:
            continue
        is_unit_mixed_up = attribute != "maxsize" and stored and wanted and stored / wanted in (1000, 0.001)
        said = f"{attribute} is {stored:g}, the settings say {wanted}"
        if is_unit_mixed_up:
            said += ": one of them is in milliseconds, the other in seconds"
        yield found(
            "differs-from-settings",
            name,
            said,
            examples=[attribute],
            severity=Severity.ERROR if is_unit_mixed_up else None,
        )
