"""Messages about burn alarms, by e-mail and to a webhook: one when an alarm begins, and one when it ends.

An alarm is of an objective and a severity: "page" while its budget burns too fast in the window of one hour or of six,
"ticket" in that of three days. A message that cannot be delivered is tried again by the next run, in its order.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.core import mail
from django.db import router, transaction

from ..conf.sections import ADMINS
from ..conf.settings import get_settings
from ..spark.burn import ALARMS, PERIOD_S, SEVERITIES, read_objectives
from ..spark.errors import PipelineError
from .history import BurnAlarm, burn_alarms, slo_burns
from .models import SloAlarm

#: Longest wait for an answer of a webhook. Sending e-mail takes up to Django's EMAIL_TIMEOUT.
TIMEOUT_S = 10.0
BEGIN, END = "begin", "end"
#: Sends the message that an alarm begins or ends.
Sender = Callable[[SloAlarm, str], None]


@dataclass(frozen=True, slots=True)
class Notified:
    """The result of a step: the number of active alarms, and of messages that were sent."""

    alarms: int
    sent: int


def senders() -> dict[str, Sender]:
    """Return the ways of the settings on which messages are sent, by name."""
    pipeline = get_settings().pipeline
    found: dict[str, Sender] = {}
    if pipeline.alarm_email is not None:
        found["email"] = send_email
    if pipeline.alarm_webhook is not None:
        found["webhook"] = post_to_webhook
    return found


def notify() -> Notified:
    """Note which alarms begin and end, and send the messages. Raises PipelineError when one cannot be delivered.

    Two runs at once may send a message twice, on databases without locks for rows.
    """
    ways = senders()
    with transaction.atomic(using=_database()):
        alarms = _note_alarms(ways)
    failed: dict[str, str] = {}
    sent = sum(
        _send(pk, ways, failed) for pk in _alarms().exclude(unsent="").order_by("pk").values_list("pk", flat=True)
    )
    oldest = dt.datetime.now(dt.UTC) - dt.timedelta(days=get_settings().pipeline.keep_days)
    _alarms().filter(ended_at__lt=oldest).delete()
    if failed:
        reasons = "; ".join(f"{way}: {error}" for way, error in failed.items())
        raise PipelineError(f"messages about burn alarms were not delivered, the next run tries again: {reasons}")
    return Notified(alarms, sent)


# -- Alarms -----------------------------------------------------------------------------------------------------------


def _note_alarms(ways: Mapping[str, Sender]) -> int:
    """Store the alarms that begin and end; return the number of active alarms."""
    wanted = {(one.queue, one.name) for one in read_objectives(get_settings().pipeline.objectives)}
    newest = {(burn.queue, burn.objective): burn.at for burn in slo_burns()}
    now: dict[tuple[str, str, str], BurnAlarm] = {}
    for alarm in burn_alarms():
        burn = alarm.burn
        if (burn.queue, burn.objective) in wanted:
            now.setdefault((burn.queue, burn.objective, SEVERITIES[burn.window]), alarm)
    known = {
        (row.queue, row.objective, row.severity): row for row in _alarms().select_for_update().filter(ended_at=None)
    }
    for key, row in known.items():
        if key not in now:
            row.ended_at = newest.get((row.queue, row.objective), dt.datetime.now(dt.UTC))
            row.unsent = " ".join([*row.unsent.split(), *_messages(END, ways)])
            row.save()
    for (queue, objective, severity), alarm in now.items():
        if (queue, objective, severity) not in known:
            burn = alarm.burn
            values = {"window": burn.window, "burn_rate": burn.burn_rate, "budget_left": burn.budget_left}
            _alarms().get_or_create(
                queue=queue,
                objective=objective,
                severity=severity,
                began_at=burn.at,
                defaults=values | {"unsent": " ".join(_messages(BEGIN, ways))},
            )
    return len(now)


def _messages(event: str, ways: Mapping[str, Sender]) -> list[str]:
    return [f"{event}:{way}" for way in ways]


def _send(pk: int, ways: Mapping[str, Sender], failed: dict[str, str]) -> int:
    """Send the messages about an alarm; return their number. A way that has failed is left to the next run."""
    with transaction.atomic(using=_database()):
        alarm, sent, left = _alarms().select_for_update().get(pk=pk), 0, []
        for message in alarm.unsent.split():
            event, _, way = message.partition(":")
            if way in ways and way not in failed:
                try:
                    ways[way](alarm, event)
                    sent += 1
                except Exception as error:  # a backend for e-mail may raise anything
                    failed[way] = _without_webhook(f"{type(error).__name__}: {error}")[:500]
            if way in failed:
                left.append(message)
        alarm.unsent = " ".join(left)
        alarm.error = "; ".join(dict.fromkeys(failed[message.partition(":")[2]] for message in left))
        alarm.save()
    return sent


def _alarms() -> Any:
    return SloAlarm.objects.using(_database())


def _database() -> str:
    return router.db_for_write(SloAlarm)


# -- Messages ---------------------------------------------------------------------------------------------------------


def subject_of(alarm: SloAlarm, event: str) -> str:
    """Return the subject of a message."""
    state = "burns too fast" if event == BEGIN else "no longer burns too fast"
    return f"{alarm.severity}: the error budget of {alarm.objective} of queue {alarm.queue} {state}"


def text_of(alarm: SloAlarm, event: str) -> str:
    """Return the text of a message."""
    if event == END:
        assert alarm.ended_at is not None, "it has ended"
        return f"The alarm lasted from {_minute(alarm.began_at)} to {_minute(alarm.ended_at)}."
    return (
        f"In the {alarm.window} before {_minute(alarm.began_at)} it burned {alarm.burn_rate:.1f} times as fast as it "
        f"may; the alarm begins at {ALARMS[alarm.window]:g}. "
        f"{alarm.budget_left:.0%} of the budget of {PERIOD_S // 86_400} days is left."
    )


def _minute(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def send_email(alarm: SloAlarm, event: str) -> None:
    """Send an e-mail to the administrators of the project, or to the addresses of the settings."""
    to, subject, text = get_settings().pipeline.alarm_email, subject_of(alarm, event), text_of(alarm, event)
    if to == ADMINS:
        mail.mail_admins(subject, text)
    else:
        mail.send_mail(subject, text, None, list(to or ()))


def post_to_webhook(alarm: SloAlarm, event: str) -> None:
    """Send JSON to the webhook. Raises OSError unless it answers with a status from 200 to 299."""
    content = {
        "text": f"{subject_of(alarm, event)}. {text_of(alarm, event)}",
        "id": alarm.pk,
        "event": event,
        "severity": alarm.severity,
        "queue": alarm.queue,
        "objective": alarm.objective,
        "window": alarm.window,
        "burn_rate": alarm.burn_rate,
        "limit": ALARMS[alarm.window],
        "budget_left": alarm.budget_left,
        "began_at": alarm.began_at.isoformat(),
        "ended_at": alarm.ended_at and alarm.ended_at.isoformat(),
    }
    address, headers = get_settings().pipeline.alarm_webhook, {"Content-Type": "application/json"}
    # The settings allow http and https only.
    request = Request(str(address), json.dumps(content).encode(), headers)  # noqa: S310
    with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
        pass


class _NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error: its target would get a GET without the message."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow nothing."""


def _without_webhook(text: str) -> str:
    """Return an error without the address of the webhook, which may contain a secret."""
    address = get_settings().pipeline.alarm_webhook
    return text.replace(address, urlsplit(address).hostname or "") if address else text
