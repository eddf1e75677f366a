"""The options of a task in words: which are set, and what they say. Defaults that change nothing are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..conf.timetable import in_words
from ..tasks.call_key import By
from ..tasks.limits import Concurrency, Limit
from ..tasks.options import DISCARD, TaskOptions
from ..tasks.retry import AttemptBackoff, Backoff, exponential
from ..tasks.unique import Unique
from .formats import as_number, visible

Said = Iterator[tuple[str, str]]


def options_of(task: Any) -> list[tuple[str, str]]:
    """Return label and value of each option of a task that is set."""
    found = [(_("Sent to"), task.queue_name), (_("Priority"), str(task.priority))]
    if task.takes_context:
        found.append((_("Task context"), _("passed to the function")))
    options = getattr(task, "options", None)
    if isinstance(options, TaskOptions):
        for part in (_of_retries, _of_times, _of_calls, _of_runs):
            found += part(options)
    return [(label, visible(value)) for label, value in found]


def _of_retries(options: TaskOptions) -> Said:
    if options.max_attempts is not None:
        yield _("Max. attempts"), as_number(options.max_attempts)
    if options.max_attempts != 1:
        yield _("Backoff"), _backoff(options.backoff)
        if options.retry_on not in (BaseException, (BaseException,)):
            yield _("Retried errors"), _classes(options.retry_on)
        if options.give_up_on != ():
            yield _("Errors without a retry"), _classes(options.give_up_on)
    if options.dead_letter_queue is DISCARD:
        yield _("Dead letters"), _("none: messages that fail for good are deleted")
    elif options.named_dead_letters is not None:
        yield _("Dead-letter queue"), options.named_dead_letters


def _of_times(options: TaskOptions) -> Said:
    if options.timeout_s is not None:
        yield _("Timeout"), in_words(options.timeout_s)
    if options.hard_timeout_s is not None:
        yield _("Hard timeout"), _("%(time)s, then its process is stopped") % {"time": in_words(options.hard_timeout_s)}
    if options.expires_in_s is not None:
        yield _("Expires"), _("%(time)s after it is due") % {"time": in_words(options.expires_in_s)}
    if options.result_ttl_s is not None:
        yield (
            _("Result"),
            (
                _("kept for %(time)s") % {"time": in_words(options.result_ttl_s)}
                if options.result_ttl_s
                else _("not kept")
            ),
        )


def _of_calls(options: TaskOptions) -> Said:
    if options.unique is not None:
        yield _("Unique"), _unique(options.unique)
    if options.fair_by is not None:
        yield _("Fair shares"), _key(options.fair_by)
    if options.shard_by is not None:
        yield _("Shard"), _key(options.shard_by)
    if options.limits:
        yield _("Limits"), "; ".join(map(_limit, options.limits))
    if options.tags:
        yield _("Tags"), ", ".join(options.tags)
    if options.aliases:
        yield _("Other names"), ", ".join(options.aliases)


def _of_runs(options: TaskOptions) -> Said:
    if options.once:
        yield _("Once"), _("a repeated delivery does nothing")
    if options.batch is not None:
        yield _("Batch"), ngettext("%(count)d call", "up to %(count)d calls", options.batch) % {"count": options.batch}
    if options.ack == "each":
        yield _("Acknowledged"), _("each run before the next one begins")


def _backoff(backoff: Backoff) -> str:
    if not isinstance(backoff, exponential):
        if getattr(backoff, "__module__", "") == exponential.__module__:  # made by fixed()
            return _("%(time)s after each failure") % {"time": in_words(cast("AttemptBackoff", backoff)(1))}
        return _("computed by %(function)s") % {"function": _name(backoff)}
    times = {"first": in_words(backoff.first_s), "most": in_words(backoff.max_s), "factor": f"{backoff.factor:g}"}
    return _("%(first)s, then %(factor)s times as long after each failure, at most %(most)s") % times


def _unique(unique: Unique) -> str:
    window = in_words(unique.window_s or 0)
    lasts = {
        "pending": _("until a worker takes it"),
        "running": _("until it has ended"),
        "window": _("for %(time)s") % {"time": window},
    }[unique.scope]
    further = {
        "reject": _("an equal call is dropped"),
        "replace": _("an equal call replaces it while it is waiting"),
        "debounce": _("an equal call replaces it and waits %(time)s") % {"time": window},
    }[unique.mode]
    if unique.max_wait_s is not None:
        further += _(", at most %(time)s in all") % {"time": in_words(unique.max_wait_s)}
    equal = _("by all arguments") if unique.by is None else _key(unique.by)
    return f"{equal}, {lasts}; {further}"


def _limit(limit: Limit) -> str:
    count = {"count": as_number(limit.most)}
    if isinstance(limit, Concurrency):
        said = ngettext("%(count)s run at a time", "%(count)s runs at a time", limit.most) % count
    else:
        said = ngettext("%(count)s start", "%(count)s starts", limit.most) % count
        said = _("%(starts)s in any %(time)s") % {"starts": said, "time": in_words(limit.per_s)}
    if limit.by is not None:
        said += f", {_key(limit.by)}"
    return said + (_(", shared as “%(name)s”") % {"name": limit.name} if limit.name else "")


def _key(by: By) -> str:
    if callable(by):
        return _("by the function %(function)s") % {"function": _name(by)}
    return _("by %(names)s") % {"names": get_text_list(list(by), _("and"))} if by else _("all calls together")


def _classes(classes: Any) -> str:
    return ", ".join(each.__name__ for each in (classes if isinstance(classes, tuple) else (classes,)))


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
