"""Findings of an examination and results of a repair: plain, frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ..limits import MAX_MAX_SIZE_BYTES, TimeUnit

#: Called now and then with the name of the current step, how much of it is done, and its total (None: unknown).
Progress = Callable[[str, int, int | None], None]

#: A message that has been ready for longer than this is late, unless its queue has another target.
DEFAULT_TARGET_S = 60.0


class Severity(IntEnum):
    """How serious a finding is."""

    #: Information.
    NOTE = 1
    #: A future problem, or a problem for other clients.
    WARNING = 2
    #: Messages are lost, stuck or delivered wrongly.
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, or one piece of information."""

    #: The kind; all kinds are listed in catalogue.py and docs/how-to/doctor.md.
    id: str
    severity: Severity
    #: A queue's name, a key, or "server".
    subject: str
    what: str
    why: str
    #: The action of repair(); None: a person must decide.
    repair: str | None = None
    #: Up to three of the ids, fields or keys concerned.
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of the repair of a finding."""

    finding: Finding
    #: Number of messages, fields, attributes or keys that were changed; 0: nothing was left to do.
    changed: int
    #: Why the repair failed, or "".
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedQueue:
    """A queue as the caller's configuration describes it. A repair sets broken attributes to these values."""

    visibility_timeout_s: int = 30
    delay_s: int = 0
    max_size_bytes: int = MAX_MAX_SIZE_BYTES
    vt_unit: TimeUnit = "s"
    #: Whether workers of the caller consume it.
    is_worked_on: bool = False
    #: Its dead-letter queue; "" when that is not known.
    dead_letter: str = ""
    #: How long a message may be ready before the backlog counts as late.
    target_s: float = DEFAULT_TARGET_S

    @property
    def stored(self) -> dict[str, int]:
        """Return the attributes as they are stored in Redis."""
        factor = 1000 if self.vt_unit == "ms" else 1
        return {
            "vt": self.visibility_timeout_s * factor,
            "delay": self.delay_s * factor,
            "maxsize": self.max_size_bytes,
        }
