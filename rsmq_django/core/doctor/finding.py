"""What an examination finds and what a repair did: plain, frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ..limits import MAX_MAX_SIZE_BYTES, TimeUnit

#: Called now and then with what is being looked at, how far it is, and how far it goes (None: nobody knows).
Progress = Callable[[str, int, int | None], None]


#: A message that has been ready for longer should have been taken, unless its queue has another target.
DEFAULT_TARGET_S = 60.0


class Severity(IntEnum):
    """How bad it is."""

    #: Good to know.
    NOTE = 1
    #: It will hurt some day, or it hurts other clients.
    WARNING = 2
    #: Messages are lost, stuck or handed out wrongly.
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    #: Names the kind; all kinds stand in catalogue.py and docs/doctor.md.
    id: str
    severity: Severity
    #: A queue's name, a key, or "server".
    subject: str
    what: str
    why: str
    #: What repair() will do about it; None: a person must decide.
    repair: str | None = None
    #: A few ids, fields or keys that it is about.
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about a finding."""

    finding: Finding
    #: Messages, fields, attributes or keys that were changed; 0: there was nothing left to do.
    changed: int
    #: Why it could not be done, or "".
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedQueue:
    """What the caller's configuration says about a queue; also what a broken one is mended with."""

    visibility_timeout_s: int = 30
    delay_s: int = 0
    max_size_bytes: int = MAX_MAX_SIZE_BYTES
    vt_unit: TimeUnit = "s"
    #: Workers of the caller take messages from it.
    is_worked_on: bool = False
    #: Where its dead letters go; "" when that is not known.
    dead_letter: str = ""
    #: For how long a message may be ready before the backlog counts as late.
    target_s: float = DEFAULT_TARGET_S

    @property
    def stored(self) -> dict[str, int]:
        """Return the attributes as they stand in Redis."""
        factor = 1000 if self.vt_unit == "ms" else 1
        return {
            "vt": self.visibility_timeout_s * factor,
            "delay": self.delay_s * factor,
            "maxsize": self.max_size_bytes,
        }
