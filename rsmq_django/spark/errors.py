"""What can go wrong on the way between Redis and the lake, beside what `core.errors` names."""

from __future__ import annotations

from ..core.errors import RsmqError


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
