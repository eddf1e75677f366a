"""What can go wrong on the way between Redis and the lake, beside what `core.errors` names."""

from __future__ import annotations

import re

from ..core import errors as of_the_core
from ..core.errors import RsmqError

#: One of our errors in the text of one of Spark's, which holds the traceback of a Python process.
_OURS = re.compile(r"\brsmq_django\.(?:spark|core)\.errors\.(\w+): (.+)")


class PipelineError(RsmqError):
    """The base of the pipeline's own errors."""


class WrongOption(PipelineError, ValueError):
    """An option of the data source that is unknown or has an impossible value."""


class DataLoss(PipelineError):
    """Rows that a reader owes are no longer in Redis."""


class LogReset(DataLoss):
    """A log that does not reach a reader's place any more: it was deleted and made anew, or a failover lost its end."""


class StageLost(PipelineError):
    """Staged messages are gone before they were published; nothing was sent."""


class JobIncomplete(PipelineError):
    """A bulk job published fewer rows than it staged."""


class AlreadyRunning(PipelineError):
    """Another run holds the lock of this checkpoint."""


def as_our_error(error: Exception) -> Exception:
    """Return our own error where Spark wraps it in several of its own; else the error itself."""
    found = _OURS.findall(str(error))
    if isinstance(error, RsmqError) or not found:
        return error
    name, text = found[-1]
    kind = globals().get(name, getattr(of_the_core, name, None))
    return kind(text) if isinstance(kind, type) and issubclass(kind, RsmqError) else PipelineError(text)
