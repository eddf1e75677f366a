"""Attempts that are older than the event log: from the lake, if there is one and this process can read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from ..conf.archive import archived_log, find_lake
from ..core.log_lines import get_logger
from ..core.stats.events import Event
from ..core.stats.run_filter import RunFilter
from ..core.stats.runs import RunPage
from ..spark.errors import PipelineError

if TYPE_CHECKING:
    from ..spark.lake import Lake

#: Rows of the lake that are read for a page, about a second of processor time.
MOST_ROWS = 1_000_000

logger = get_logger(__name__)


class LakeProblem(Enum):
    """Why attempts were not read from the lake."""

    NO_LAKE = "no lake"
    NOT_INSTALLED = "not installed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class OlderRuns:
    """The part of a page that is older than the log."""

    #: Time of the first entry of the log; None for an empty one.
    log_begins_ms: int | None
    page: RunPage | None
    problem: LakeProblem | None = None


def has_lake(alias: str) -> bool:
    """Return whether attempts of a connection may be in a lake. Costs one look at the disk."""
    return _place(alias) is not None


def read_older(alias: str, wanted: RunFilter, *, before: str, count: int) -> RunPage | LakeProblem:
    """Return attempts of a connection before an entry id from the lake, or why they could not be read."""
    place = _place(alias)
    if place is None:
        return LakeProblem.NO_LAKE
    from ..spark.attempts import find_attempts  # here: a page that reads no lake has no use for it
    from ..spark.files import answered_soon

    lake, log = place
    try:
        with answered_soon():
            return find_attempts(lake, wanted, log=log, before=before, count=count, most_rows=MOST_ROWS)
    except ImportError:
        return LakeProblem.NOT_INSTALLED
    except (PipelineError, OSError) as error:
        logger.warning("the lake could not be read for the list of runs: %r", error)
        return LakeProblem.UNREADABLE


def read_older_run(alias: str, entry_id: str, *, task: str, message_id: str) -> Event | None:
    """Return an attempt from the lake, or None."""
    place = _place(alias)
    if place is None:
        return None
    from ..spark.attempts import read_attempt
    from ..spark.files import answered_soon

    lake, log = place
    try:
        with answered_soon():
            return read_attempt(lake, entry_id, log=log, task=task, message_id=message_id)
    except ImportError:
        return None
    except (PipelineError, OSError) as error:
        logger.warning("the lake could not be read for a run: %r", error)
        return None


def _place(alias: str) -> tuple[Lake, str] | None:
    """Return the lake, and the name of the connection's log in it."""
    from ..spark.files import is_local
    from ..spark.schemas import EVENTS

    try:
        lake, log = find_lake(), archived_log(alias)
    except (ImproperlyConfigured, PipelineError):
        return None
    if log is None or (is_local(lake.uri) and not (lake.root / EVENTS.name).is_dir()):
        return None
    return lake, log
