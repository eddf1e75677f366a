"""Errors of the pipeline, in addition to `core.errors`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..core import errors as of_the_core
from ..core.errors import RsmqError

#: One of our errors within a Spark error, whose text contains the traceback of a Python process.
_OURS = re.compile(r"\brsmq_django\.(?:spark|core)\.errors\.(\w+): (.+)")
#: A line with a cause, in the stack of Java or at the end of a traceback; lines about places are indented.
_CAUSE = re.compile(r"(?:Caused by: |: )?([A-Za-z_][\w.$]*: .+)")


class PipelineError(RsmqError):
    """The base of the pipeline's own errors."""


class WrongOption(PipelineError, ValueError):
    """An option of the data source is unknown or has an invalid value."""


class DataLoss(PipelineError):
    """Rows were trimmed from Redis before they were read."""


class LogReset(DataLoss):
    """A log no longer contains a reader's position: it was recreated, or a failover lost its end."""


class StageLost(PipelineError):
    """Staged messages were lost before they were published; nothing was sent."""


class RunAborted(PipelineError):
    """Rows arrived after the abort of the run they belong to; they were not staged."""


class JobIncomplete(PipelineError):
    """A bulk job published fewer rows than it staged."""


class ConnectionsFailed(PipelineError):
    """A step failed on some connections or queues; it was done on the others."""


class AlreadyRunning(PipelineError):
    """Another run of this step is active."""


def as_our_error(error: Exception) -> Exception:
    """Return the pipeline error that a Spark error wraps; else the error itself."""
    found = _OURS.findall(str(error))
    if isinstance(error, RsmqError) or not found:
        return error
    name, text = found[-1]
    kind = globals().get(name, getattr(of_the_core, name, None))
    return kind(text) if isinstance(kind, type) and issubclass(kind, RsmqError) else PipelineError(text)


def brief(error: Exception) -> str:
    """Return an error as one sentence: our own as it is; of others their first line and their last cause.

    Errors of Spark have some thirty lines of Java's stack before the cause that matters.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, RsmqError):
        return text
    first, *others = filter(None, text.splitlines())
    causes = [found[1] for line in others if (found := _CAUSE.match(line))]
    return "; ".join(dict.fromkeys(line.rstrip(" :") for line in (first, *causes[-1:])))


def failure_of(failed: Mapping[str, Exception]) -> Exception:
    """Return one error for those of several connections. Where all are of a kind with an exit code, it has that."""
    kinds = {type(error) for error in failed.values()}
    for kind in (AlreadyRunning, LogReset, DataLoss):
        if all(issubclass(each, kind) for each in kinds):
            return kind("; ".join(f"{error}" for error in failed.values()))
    return ConnectionsFailed("; ".join(f"{name}: {brief(error)}" for name, error in failed.items()))
