"""`rsmqctl task retry`: retry dead letters of tasks, by id or a whole queue at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import click

from ..core import Client, RsmqError
from ..core.queue.browse import StoredMessage
from ..core.queue.browse import count as count_call
from ..core.queue.retry_plans import (
    MAX_RATE,
    MIN_RATE,
    RetryPlan,
    begin,
    cancel,
    each_part,
    go_on,
    plans_of,
    read_plan,
    return_part,
    settle_part,
    stop,
)
from ..core.queue.transfers import Transfer, by_target, pages, preview, redrive_slice
from ..core.stats.fingerprint import fingerprint_of
from ..core.texts import counted
from ..core.transport.portions import grouped
from .dead_letters import Filter, filter_options
from .failures import Failed, Interrupted, name_of, text_of
from .options import RsmqctlCommand, complete_queue_name, dry_run_option
from .output import ProgressBar, write_json
from .session import Session
from .tasks import find_message, newest_run, read_record
from .transfers import MessagesStayed, print_result

#: Interval at which outcomes are polled.
LOOK_EVERY_S = 0.5
Fits = Callable[[StoredMessage], bool]


@click.command(cls=RsmqctlCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="All matching dead letters of this queue."
)
@click.option("--group", metavar="HEX", help="Of this error group, as printed by task list --json.")
@filter_options
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of dead letters.")
@click.option(
    "--rate", type=click.FloatRange(MIN_RATE, MAX_RATE), metavar="N", help="Dead letters per second.  [default: 10]"
)
@click.option("--wait", is_flag=True, help="Wait for the outcomes; exit with 1 if one failed again.")
@click.option("--cancel", "is_cancel", is_flag=True, help="Turn retries that are not due yet into dead letters again.")
@dry_run_option
@click.pass_obj
def retry(
    session: Session,
    /,
    ids: tuple[str, ...],
    name: str | None,
    group: str | None,
    limit: int | None,
    rate: float | None,
    wait: bool,
    is_cancel: bool,
    dry_run: bool,
    **conditions: Any,
) -> None:
    """Retry dead letters of tasks.

    By ID (of a task, a run or a message), or all matching ones of a dead-letter queue. These go back to their queues at
    once with due times spread according to --rate, which therefore holds after this command has ended. Interrupting the
    command neither loses nor duplicates messages; the same command continues with the rest.

    \b
    rsmqctl task retry QTVi1UhwiWMElwUhTBW4Ty
    rsmqctl task retry -n mail-dead --limit 1 --wait
    rsmqctl task retry -n mail-dead --error 'Connection*' --rate 20
    rsmqctl task retry -n mail-dead --cancel
    """
    chosen = Filter(**conditions)
    has_filter = not chosen.is_empty or any(each is not None for each in (group, limit, rate))
    if bool(ids) == bool(name):
        raise click.UsageError("give either ids, or a dead-letter queue with -n")
    if (ids or is_cancel) and (has_filter or wait):
        raise click.UsageError("filters, --limit, --rate and --wait are for all of a queue (-n QUEUE)")
    if ids:
        _retry_ids(session, list(dict.fromkeys(ids)), dry_run=dry_run)
        return
    assert name is not None
    client = session.client(name)
    if is_cancel:
        _cancel(session, client, name, dry_run=dry_run)
        return

    def fits(message: StoredMessage) -> bool:
        return chosen.fits(message) and group in (None, fingerprint_of(message.failure()))

    # Another process can continue a plan only if the plan contains the whole filter.
    failure = group if group is not None and chosen.is_empty else ""
    if dry_run:
        _preview(session, client, name, fits, limit)
    else:
        _retry_all(session, client, name, fits, rate=rate or 10.0, limit=limit, failure=failure, waits=wait)


# -- By id ------------------------------------------------------------------------------------------------------------


def _retry_ids(session: Session, ids: Sequence[str], *, dry_run: bool) -> None:
    """Retry the dead letters of these ids. Raises Failed for the first id without one, before anything is changed."""
    found, failures = [_find_dead_letter(session, each) for each in ids], []
    for (client, queue_name), letters in grouped(found, itemgetter(0, 1)).items():
        message_ids = [message.id for _client, _queue, message in letters]
        transfer = Transfer(client, queue_name, ids=message_ids, with_failures=True)
        if dry_run:
            transfer.moved.update(home for home, *_kind in preview(transfer).elements())
        else:
            for part in transfer.slices():
                redrive_slice(transfer, part, None)
        try:
            print_result(session, transfer, "would retry" if dry_run else "retried")
        except MessagesStayed as failure:  # those of the other queues are retried all the same
            failures.append(failure.text)
    if failures:
        raise MessagesStayed("; ".join(failures))


def _find_dead_letter(session: Session, name: str) -> tuple[Client, str, StoredMessage]:
    """Return the dead letter of a task, run or message, with its queue and client: on any connection or shard."""
    for client in session.servers().values():
        found = _dead_letter_of(client, name)
        if found is not None:
            return client, *found
    raise Failed(
        "deadLetterNotFound", f"no dead letter of {name}: it has not failed permanently, or was retried or deleted"
    )


def _dead_letter_of(client: Client, name: str) -> tuple[str, StoredMessage] | None:
    message_ids = [name, read_record(client, name).get("message", b"").decode("utf-8", "replace")]
    if not any(message_id and find_message(client, message_id) for message_id in message_ids):
        run = newest_run(client, name)
        message_ids = [run.message_id] if run is not None else []
    for message_id in filter(None, message_ids):
        found = find_message(client, message_id)
        if found is not None and found[1].failure_json:
            return found
    return None


# -- All of a queue ---------------------------------------------------------------------------------------------------


def _preview(session: Session, client: Client, name: str, fits: Fits, limit: int | None) -> None:
    transfer = Transfer(client, name)
    left = limit
    for part in pages(client, name, with_failures=True):
        fitting = [message for message in part.messages if fits(message)][:left]
        groups, _homeless = by_target(name, fitting)
        transfer.moved.update({home: len(messages) for home, messages in groups.items()})
        left = None if left is None else left - len(fitting)
        if left == 0:
            break
    print_result(session, transfer, "would retry")


def _retry_all(
    session: Session,
    client: Client,
    name: str,
    fits: Fits,
    *,
    rate: float,
    limit: int | None,
    failure: str,
    waits: bool,
) -> None:
    to_look_at = client.run(count_call(client.namespace, name)).messages
    plan_id = begin(client, name, rate=rate, to_look_at=to_look_at, limit=limit, failure=failure)
    sent = 0
    try:
        with ProgressBar("checked", to_look_at, is_quiet=session.json) as bar:
            looked_at = 0
            for plan in go_on(client, plan_id, fits):
                bar.advance(plan.looked_at - looked_at)
                sent, looked_at = plan.sent, plan.looked_at
        if waits:
            _await_end(session, client, plan_id)
    except RsmqError as error:
        raise Failed(name_of(error), text_of(error) + _so_far(sent)) from error
    except KeyboardInterrupt as error:
        stop(client, plan_id)
        plan_now = read_plan(client, plan_id)
        raise Interrupted("interrupted" + _so_far(plan_now.sent if plan_now is not None else 0)) from error
    ended = read_plan(client, plan_id)
    assert ended is not None
    _print_plan(session, ended)
    if waits and ended.failed:
        raise Failed("failedAgain", f"{counted(ended.failed)} failed again")


def _await_end(session: Session, client: Client, plan_id: str) -> None:
    plan = read_plan(client, plan_id)
    done = 0
    with ProgressBar("ended", plan.sent if plan else 0, is_quiet=session.json) as bar:
        while plan is not None and plan.open:
            for _ended in each_part(settle_part, client, plan):
                pass
            plan = read_plan(client, plan_id)
            if plan is None or not plan.open:
                break
            bar.advance(plan.ended - done)
            done = plan.ended
            time.sleep(LOOK_EVERY_S)


def _so_far(sent: int) -> str:
    return f"; {counted(sent)} retried and still scheduled; the same command continues with the rest" if sent else ""


def _cancel(session: Session, client: Client, name: str, *, dry_run: bool) -> None:
    returned = 0
    for plan in plans_of(client, name):
        if dry_run:
            returned += plan.later
        elif plan.state == "sending" or plan.later:
            cancel(client, plan.id)
            returned += sum(each_part(return_part, client, plan))
    if session.json:
        write_json({"returned": returned})
    else:
        click.echo(f"{'would return' if dry_run else 'returned'} {counted(returned)} to {name}")


def _print_plan(session: Session, plan: RetryPlan) -> None:
    if session.json:
        names = ("id", "source", "sent", "succeeded", "failed", "unknown", "open", "rate")
        write_json({name: getattr(plan, name) for name in names} | {"left_s": round(plan.left_s, 3)})
        return
    more = f", the last one is due in {plan.left_s:.0f} s" if plan.later else ""
    ended = f": {plan.succeeded} succeeded, {plan.failed} failed again" if plan.ended else ""
    click.echo(f"retried {counted(plan.sent)} from {plan.source}{ended}{more}")
