"""Fires schedules. Every supervisor does it, without a leader: the script that fires lets only the first one succeed.

It does not run in the worker's main loop: the supervisor checks once a second, and at the time of the next tick. All
times are those of the Redis server; this machine's clock is only used to notice a jump of the server's clock.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...conf.schedules import Schedule, from_json
from ...conf.timetable import missed_and_late
from ...core import Client
from ...core.errors import ConnectionFailed, OutcomeUnknown, QueueNotFound, RsmqError
from ...core.log_lines import get_logger
from ...core.tasks.schedules import (
    DueEntries,
    DueEntry,
    Firing,
    Listing,
    find_due,
    fire,
    list_entries,
    note_synced,
    plan_entry,
    put_entry,
    remove_entry,
)
from ...core.transport.call import Call
from ...core.transport.portions import portions, size_of_call
from ...queues import create_as_configured
from ...tasks.outgoing import Outgoing
from ...tasks.results import UNFINISHED_TTL_S
from ...tasks.route import result_ttl_s
from ...tasks.schedule import (
    UnusableSchedule,
    check_origin,
    connection_of,
    declared_schedules,
    owner,
    prepare_ticks,
    tick_ids,
)
from ...tasks.tags import KEPT_MS
from ...tasks.tracing import sending

logger = get_logger(__name__)

#: Maximum time between two checks, so the delay until an entry is noticed that was added at run time.
LOOK_EVERY_S = 1.0
#: The server's clock was set back, not merely corrected a little: planned times may be too far in the future now.
CLOCK_JUMP_MS = 2000
#: Entries whose ticks are sent in one round trip.
FIRED_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The ticks of one entry, ready to fire."""

    entry: Schedule
    firing: Firing
    #: Missed ticks that fire late.
    made_up: Sequence[int]
    outgoing: Outgoing
    call: Call[bool]


def _size_of(prepared: _Prepared) -> int:
    return size_of_call(prepared.call)


class Scheduler:
    """Fires the entries of one connection."""

    def __init__(self, client: Client, alias: str) -> None:
        self._client = client
        self._namespace = client.namespace
        self._alias = alias
        self._owner = owner()
        self._is_synced = False
        #: Server time of the last check in ms, and the monotonic time then.
        self._last_look: tuple[int, float] | None = None
        #: The last problem that was logged for an entry, so that it is logged once.
        self._complaints: dict[str, str] = {}

    def fire_due(self, living: Sequence[str] = ()) -> float:
        """Fire due entries and return the number of seconds until the next check. Raises errors of the connection."""
        if not self._is_synced:
            self.sync()
        moment = self._client.run(find_due(self._namespace, self._owner))
        if not moment.is_synced or self._clock_went_back(moment.now_ms):
            self.sync()  # the server has lost its data, or its clock was set back
        for together in portions(self._prepared(moment), _size_of, count=FIRED_TOGETHER):
            self._fire(together)
        wait_s = LOOK_EVERY_S if moment.next_ms is None else (moment.next_ms - moment.now_ms) / 1000
        return min(LOOK_EVERY_S, wait_s)

    def _clock_went_back(self, now_ms: int) -> bool:
        before, self._last_look = self._last_look, (now_ms, time.monotonic())
        if before is None:
            return False
        passed_ms = (self._last_look[1] - before[1]) * 1000
        return now_ms - before[0] < passed_ms - CLOCK_JUMP_MS

    # -- Firing -------------------------------------------------------------------------------------------------------

    def _prepared(self, moment: DueEntries) -> Iterator[_Prepared]:
        """Prepare the ticks of each due entry. A problem of one entry does not affect others."""
        for due in moment.due:
            try:
                entry = from_json(due.name, due.definition)
                check_origin(entry, due.definition)
                prepared = self._prepare(entry, due, moment.now_ms)
            except (ConnectionFailed, OutcomeUnknown):
                raise
            except (ValueError, RsmqError) as error:
                self._log_failure(due.name, error)
            else:
                yield prepared

    def _fire(self, together: Sequence[_Prepared]) -> None:
        """Fire the ticks of some entries together: very many may be due at midnight, on a distant server."""
        replies = self._client.run_many([each.call for each in together])
        missing = [at for at, reply in enumerate(replies) if isinstance(reply, QueueNotFound)]  # nothing was changed
        if missing:
            again = [together[at] for at in missing]
            refused = self._create(dict.fromkeys(each.outgoing.queue.name for each in again))
            for at, reply in zip(missing, self._client.run_many([each.call for each in again]), strict=True):
                replies[at] = refused.get(together[at].outgoing.queue.name, reply)
        for each, reply in zip(together, replies, strict=True):
            if isinstance(reply, RsmqError):
                self._log_failure(each.entry.name, reply)
                continue
            self._complaints.pop(each.entry.name, None)
            if reply:
                with sending(each.outgoing.span, is_alone=False):
                    self._log_made_up(each)

    def _create(self, queue_names: Iterable[str]) -> dict[str, RsmqError]:
        """Create queues, and return the errors of those that cannot be created."""
        refused = {}
        for name in queue_names:
            try:
                create_as_configured(name, self._client)
            except (ConnectionFailed, OutcomeUnknown):
                raise
            except RsmqError as error:
                refused[name] = error
        return refused

    def _prepare(self, entry: Schedule, due: DueEntry, now_ms: int) -> _Prepared:
        missed, late = missed_and_late(
            entry.timetable,
            planned_ms=due.planned_ms,
            now_ms=now_ms,
            missed_after_ms=round(entry.missed_after_s * 1000),
        )
        made_up = missed[max(0, len(missed) - entry.missed_fire) :]
        ticks = [*made_up, *late]
        ids = tick_ids(entry, self._namespace, ticks)
        outgoing, delay_ms = prepare_ticks(entry, ids), jitter_ms(entry, ids)
        firing = Firing(
            entry=due,
            next_ms=entry.timetable.after(now_ms),
            skipped=len(missed) - len(made_up),
            ticks=ticks,
            task_ids=ids,
            bodies=outgoing.bodies,
            delay_ms=delay_ms,
            unfinished_ttl_s=UNFINISHED_TTL_S if result_ttl_s(outgoing.task) else 0,
            tags=outgoing.task.options.tags,
            tags_kept_ms=KEPT_MS + delay_ms,
        )
        queue = outgoing.queue
        call = fire(self._namespace, queue.keys, queue.name, firing, channel=outgoing.route.channel)
        return _Prepared(entry, firing, made_up, outgoing, call)

    def _log_made_up(self, fired: _Prepared) -> None:
        name, firing = fired.entry.name, fired.firing
        logger.debug("schedule %s fired: %s", name, ", ".join(firing.task_ids) or "nothing")
        if fired.made_up or firing.skipped:
            logger.warning(
                "schedule %s: not fired when it was due; %d missed ticks are made up for, %d are skipped",
                name,
                len(fired.made_up),
                firing.skipped,
            )

    def _log_failure(self, name: str, error: Exception) -> None:
        if self._complaints.get(name) != str(error):
            self._complaints[name] = str(error)
            logger.error("%s; it does not fire here, other schedules do", str(error).rstrip("."))

    # -- Entries declared in code -------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Write the entries that this project declares to Redis, and repair impossible next times.

        Safe to repeat, and to run at the same time as others: each write compares the value that it replaces.
        """
        here, elsewhere = self._declared_entries()
        listing = self._client.run(list_entries(self._namespace))
        calls = [*self._put_calls(listing, here), *self._removal_calls(listing, {*here, *elsewhere})]
        calls += self._corrections(listing)
        for start in range(0, len(calls), 100):
            for answer in self._client.run_many(calls[start : start + 100]):
                if isinstance(answer, RsmqError):
                    raise answer  # for example a full server: sync is repeated
        self._client.run(note_synced(self._namespace, self._owner))
        self._is_synced = True

    def _declared_entries(self) -> tuple[dict[str, Schedule], set[str]]:
        """Return the entries of this connection, and the names of entries whose connection is unknown."""
        here, unknown = {}, set()
        for name, entry in declared_schedules().items():
            try:
                if connection_of(entry) == self._alias:
                    here[name] = entry
            except UnusableSchedule as error:
                unknown.add(name)
                self._log_failure(name, error)
        return here, unknown

    def _put_calls(self, listing: Listing, here: dict[str, Schedule]) -> list[Call[int]]:
        calls = []
        for name, entry in here.items():
            definition, stored = entry.as_json(), listing.entries.get(name)
            if stored is not None and stored.definition == definition and stored.owner == self._owner:
                continue
            if stored is not None and not stored.owner:
                logger.warning("schedule %s was added at run time; the declaration in the code replaces it", name)
            put = put_entry(
                self._namespace,
                name,
                definition,
                seen=stored.definition if stored is not None else "",
                owner=self._owner,
                next_ms=entry.timetable.after(listing.now_ms),
                earlier_stays=True,
            )
            calls.append(put)
        return calls

    def _removal_calls(self, listing: Listing, kept: set[str]) -> list[Call[int]]:
        gone = [each for each in listing.entries.values() if each.owner == self._owner and each.name not in kept]
        for entry in gone:
            logger.info("schedule %s is not declared any more; it is removed", entry.name)
        return [remove_entry(self._namespace, entry.name, seen=entry.definition) for entry in gone]

    def _corrections(self, listing: Listing) -> list[Call[int]]:
        """Return calls that repair next times that are lost or too far away, after the clock was set back."""
        calls = []
        for stored in listing.entries.values():
            if stored.is_paused:
                continue
            try:
                next_ms = from_json(stored.name, stored.definition).timetable.after(listing.now_ms)
            except ValueError:
                continue  # reported when it is due, and in every list
            if stored.next_ms is None or stored.next_ms > next_ms:
                calls.append(plan_entry(self._namespace, stored, next_ms))
        return calls


def jitter_ms(entry: Schedule, ids: Sequence[str]) -> int:
    """Return the delays of these ticks: random, but the same in every supervisor that fires them."""
    longest_ms = round(entry.jitter_s * 1000)
    if not longest_ms or not ids:
        return 0
    return int.from_bytes(hashlib.sha256(ids[-1].encode()).digest()[:8]) % (longest_ms + 1)
