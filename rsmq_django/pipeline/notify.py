"""Messages about burn alarms, by e-mail and to a webhook: one when an alarm begins, and one when it ends.

An alarm is of an objective and a severity: "page" while its budget burns too fast in the window of one hour or of six,
"ticket" in that of three days. Burn rates are those of the newest event: without newer ones, an alarm ends when its
window is over by the clock. A message that cannot be delivered is tried again by the next run, in its order.

A run claims the messages of an alarm before it sends them, so that two runs at once do not send one twice. No
transaction is open meanwhile: with SQLite, no other process could write.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.conf import settings as django_settings
from django.core import mail
from django.db import router
from django.db.models import Q

from ..conf.sections import ADMINS
from ..conf.settings import get_settings
from ..spark.burn import ALARMS, PERIOD_S, SEVERITIES, WINDOWS_S, read_objectives
from ..spark.errors import PipelineError
from .history import BurnAlarm, burn_alarms, slo_burns
from .models import CLAIM, SloAlarm, SloBurn
from .state import project_logs, published_steps

#: Longest wait for an answer of a webhook. Sending e-mail takes up to Django's EMAIL_TIMEOUT.
TIMEOUT_S = 10.0
BEGIN, END = "begin", "end"
#: After this time, a run has died that has claimed messages and not sent them.
CLAIM_S = 600.0
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
    """Note which alarms begin and end, and send the messages. Raises PipelineError when one cannot be delivered."""
    ways = senders()
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


@dataclass(slots=True)
class _Burning:
    """The windows of an objective and a severity that burn too fast."""

    #: That of the shortest window.
    alarm: BurnAlarm
    #: When all of them are over.
    over_at: dt.datetime


#: Queue, objective and severity.
_Key = tuple[str, str, str]


def _note_alarms(ways: Mapping[str, Sender]) -> int:
    """Store the alarms that begin and end; return the number of active alarms."""
    now = _burning_now()
    known = {(row.queue, row.objective, row.severity): row for row in _alarms().filter(ended_at=None)}
    over = {key: now[key].over_at for key in known.keys() & now.keys() if now[key].over_at <= dt.datetime.now(dt.UTC)}
    until = _known_until() if over else None
    ended = {key: at for key, at in over.items() if until is not None and at <= until}
    newest = {(burn.queue, burn.objective): burn.at for burn in slo_burns()}
    for key in known.keys() - now.keys():
        ended[key] = newest.get(key[:2], dt.datetime.now(dt.UTC))
    for key, ended_at in ended.items():
        row = known[key]
        unsent = " ".join([*row.unsent.split(), *_messages(END, ways)])
        # Not if another run has changed it meanwhile: it has ended it, or sent a message.
        _alarms().filter(pk=row.pk, ended_at=None, unsent=row.unsent).update(ended_at=ended_at, unsent=unsent)
    for key in sorted(now.keys() - known.keys()):
        _begin(key, now[key].alarm.burn, ways)
    return int(_alarms().filter(ended_at=None).count())


def _burning_now() -> dict[_Key, _Burning]:
    wanted = {(one.queue, one.name) for one in read_objectives(get_settings().pipeline.objectives)}
    now: dict[_Key, _Burning] = {}
    for alarm in burn_alarms():
        burn = alarm.burn
        if (burn.queue, burn.objective) in wanted:
            over_at = burn.at + dt.timedelta(seconds=WINDOWS_S[burn.window])
            found = now.setdefault((burn.queue, burn.objective, SEVERITIES[burn.window]), _Burning(alarm, over_at))
            found.over_at = over_at
    return now


def _begin(key: _Key, burn: SloBurn, ways: Mapping[str, Sender]) -> None:
    """Store an alarm, unless another run has begun it, or it has ended by the clock since these rates were computed."""
    about = dict(zip(("queue", "objective", "severity"), key, strict=True))
    if _alarms().filter(Q(ended_at=None) | Q(ended_at__gt=burn.at), **about).exists():
        return
    values = {"window": burn.window, "burn_rate": burn.burn_rate, "budget_left": burn.budget_left}
    unsent = " ".join(_messages(BEGIN, ways))
    _alarms().get_or_create(**about, began_at=burn.at, defaults=values | {"unsent": unsent})


def _known_until() -> dt.datetime | None:
    """Return the time until which all events are in the burn rates; None if that is not sure.

    It is not while an event is not archived, a server does not answer, or a step that computes the rates has failed.
    """
    steps = {state.step: state for state in published_steps()}
    computed = [steps.get(step) for step in ("rollup", "analyse")]
    if any(log is None or log.lag_s for log in project_logs().values()):
        return None
    begins = [state.started_at for state in computed if state is not None and not state.error]
    return min(begins) if len(begins) == len(computed) else None


def _messages(event: str, ways: Mapping[str, Sender]) -> list[str]:
    return [f"{event}:{way}" for way in ways]


def _send(pk: int, ways: Mapping[str, Sender], failed: dict[str, str]) -> int:
    """Send the messages about an alarm; return their number. A way that has failed is left to the next run."""
    alarm = _alarms().get(pk=pk)
    messages = _claimed(alarm)
    done: list[str] = []
    for message in messages:
        event, _, way = message.partition(":")
        if way in ways and way not in failed:
            try:
                ways[way](alarm, event)
                done.append(message)
            except Exception as error:  # a backend for e-mail may raise anything
                failed[way] = _without_webhook(f"{type(error).__name__}: {error}")[:500]
        elif way not in ways:
            done.append(message)
    if messages:
        _note_sent(pk, done, failed)
    return sum(message.partition(":")[2] in ways for message in done)


def _claimed(alarm: SloAlarm) -> list[str]:
    """Claim the messages of an alarm, and return them; none while another run sends them."""
    messages = alarm.messages
    earlier = alarm.unsent.partition(" ")[0] if alarm.unsent.startswith(CLAIM) else ""
    if not messages or earlier and abs(time.time() - int(earlier.removeprefix(CLAIM))) < CLAIM_S:
        return []
    claimed = " ".join([f"{CLAIM}{int(time.time())}", *messages])
    return messages if _alarms().filter(pk=alarm.pk, unsent=alarm.unsent).update(unsent=claimed) else []


def _note_sent(pk: int, done: Sequence[str], failed: Mapping[str, str]) -> None:
    """Note which messages were sent, and give up the claim. Another run may have added the end of the alarm."""
    is_noted = 0
    while not is_noted:
        alarm = _alarms().get(pk=pk)
        left = [message for message in alarm.messages if message not in done]
        errors = [failed[way] for _, _, way in (message.partition(":") for message in left) if way in failed]
        values = {"unsent": " ".join(left), "error": "; ".join(dict.fromkeys(errors))}
        is_noted = _alarms().filter(pk=pk, unsent=alarm.unsent).update(**values)


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
    """Send an e-mail to the administrators of the project, or to the addresses of the settings.

    Raises PipelineError without administrators: Django would send nothing, and say nothing.
    """
    to, subject, text = get_settings().pipeline.alarm_email, subject_of(alarm, event), text_of(alarm, event)
    if to == ADMINS:
        if not django_settings.ADMINS:
            raise PipelineError("the setting ADMINS is empty")
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
    try:
        with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
            pass
    except HTTPError as error:
        error.close()  # it holds the socket
        raise


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
