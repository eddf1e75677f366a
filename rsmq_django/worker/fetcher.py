"""The worker's conversation with one Redis server: what ended goes out and new messages come in, in one round trip."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..conf import get_settings
from ..core import Client, RsmqError
from ..core.errors import BrokenQueue, ConnectionFailed, QueueNotFound
from ..core.keys import paused_key, worker_key
from ..core.limits import MAX_BATCH
from ..log_lines import get_logger
from .aftermath import aftermath_calls
from .announcer import Announcer
from .board import Board
from .cancellations import Cancellations
from .clock import ServerClock
from .delivery import Delivery, WorkQueue
from .early_look import EarlyLook
from .endings import Ending, ending_calls
from .event_log import EventLog
from .execution import Execution
from .flight import Flight
from .ghosts import Ghosts
from .herd import Member
from .leases import Leases, renewal_calls
from .lineup import Lineup, Look
from .lookout import Lookout
from .outage import Outage
from .outcomes import Outcome, Released
from .recent_successes import RecentStep
from .starts import Starts, starts_to_note
from .statistics import MOST_LAST_REPORTS, ReportStep, Statistics
from .steps import (
    AftermathStep,
    AskStep,
    BeatStep,
    EndStep,
    Fetched,
    FetchStep,
    LetGoStep,
    RenewStep,
    StartStep,
    Step,
    is_damage,
)
from .tray import Tray

logger = get_logger(__name__)

#: Exchanges in a row that may fail while the last outcomes of a worker are carried out.
MOST_LAST_FAILURES = 2


class Fetcher:
    """Works on some queues of one connection, in the order given: the first queue's messages come first."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[WorkQueue],
        *,
        announcer: Announcer,
        poll_interval_s: float,
        wake: Callable[[], None],
        board: Board | None = None,
        herd: Member | None = None,
        connection_number: int = 0,
    ) -> None:
        self.client = client
        self.lineup = Lineup(client, queues)
        self.holds_key = worker_key(client.namespace, announcer.worker_id)
        self.announcer = announcer
        self.leases = Leases()
        self.clock = ServerClock()
        #: None when they are switched off.
        self.statistics = Statistics.from_settings(client.namespace, announcer.worker_id, now_ms=self.clock.now_ms)
        self.event_log = EventLog.from_settings(get_settings().events, announcer.worker_id, client.namespace)
        self.outage = Outage(f"{client.connection!r}", server=client.connection)
        self.lookout = Lookout(poll_interval_s=poll_interval_s, herd=herd, connection_number=connection_number)
        self.tray = Tray(client)
        self.cancellations = Cancellations(client)
        self._wake = wake
        self._board = board
        self._pauses = Outage(f"key {paused_key(client.namespace)!r}")
        self._starts = Starts()
        self._ghosts = Ghosts(client, self.holds_key)
        self._fetch_numbers = itertools.count(1)
        self._early_look = EarlyLook(self)
        #: The exchange that is under way.
        self._flight: Flight | None = None
        #: When to send the next heartbeat, on the monotonic clock; without a supervisor there is none to send.
        self.next_beat_at = 0.0 if board is not None else math.inf
        #: How many messages the last look brought, if that was all it asked for.
        self._filled = 0
        #: The last look found no message at all, neither ready nor hidden; None before the first look.
        self.is_empty: bool | None = None
        #: The last look found nothing ready.
        self.is_drained: bool | None = None

    @property
    def queues(self) -> Sequence[WorkQueue]:
        """Return the queues and their priority bands, in the order of the worker's list."""
        return self.lineup.queues

    # -- What others tell it, from any thread -------------------------------------------------------------------------

    def began(self, execution: Execution) -> None:
        """Take over that an attempt began, to be noted in its result record if it runs for long."""
        delivery, limit_s, began_at = execution.delivery, execution.hard_timeout_s, execution.began_at
        delivery.started_ms, delivery.execution = began_at * 1000 + self.clock.offset_ms, execution
        if self._board is not None:
            run_by = 0.0 if limit_s is None else began_at + limit_s
            delivery.slot = self._board.enter(delivery.message.id, began_at=began_at, run_by=run_by)
        if self.statistics is not None and execution.may_run:
            self.statistics.began(delivery.work_queue.name, execution.path)

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Take over an outcome; the next exchange carries it out. Whoever runs executions wakes the worker after it."""
        if execution.hard_timeout_s is not None:
            self._lift_limit(execution)
        execution.finished_ms = (execution.ended_at or time.monotonic()) * 1000 + self.clock.offset_ms
        self.tray.endings.append(Ending(execution, outcome))

    def note_interruption(self, execution: Execution) -> None:
        """Count that a function was interrupted."""
        if self.statistics is not None:
            self.statistics.interrupted(execution.delivery.work_queue.name, execution.path)

    def hurry(self) -> None:
        """Let the next exchange come soon."""
        self._wake()

    def let_go(self, execution: Execution) -> None:
        """Stop renewing the lease of a message that will have no outcome here, so that it comes back."""
        self._lift_limit(execution)
        self.tray.let_go([execution.delivery])
        self._wake()

    def _lift_limit(self, execution: Execution) -> None:
        slot = execution.delivery.slot
        if slot is not None and self._board is not None:
            self._board.lift_limit(slot)

    def heard(self) -> None:
        """Look for messages soon, because one was published: at once, or when others have had their turn."""
        if self.lookout.heard():
            self._wake()

    @property
    def was_told_to_look(self) -> bool:
        """Say whether somebody sent a message that was not looked for yet."""
        return self.lookout.was_told

    def get_ready(self, room: int, *, at_most: int = MAX_BATCH) -> None:
        """Put the next look together, if nothing else would have to go with it: the worker is about to sleep."""
        if room > 0 and self.is_idle and self.lineup.is_settled and self.lineup.scan is None:
            self._early_look.get_ready(room, min(at_most, MAX_BATCH))
        else:
            self._early_look.put_aside()

    @property
    def is_looking(self) -> bool:
        """Say whether a look was sent of which the next exchange reads the answer."""
        return self._flight is not None

    def ask_early(self) -> bool:
        """Send the look that is ready, because something was published; the next exchange reads the answer.

        Returns False when nothing is ready, or others have their turn first.
        """
        if self.outage.is_on or self._ghosts.may_be or self.lookout.turn_s > 0:
            return False
        try:
            self._flight = self._early_look.send()
        except RsmqError as error:
            self._lose((), error)
            self._ghosts.suspect(are_likely=True)
            return True
        if self._flight is not None:
            self.lookout.was_told = True
            self.lookout.begin()
        return self.is_looking

    def ask_ahead(self, room: int, *, at_most: int) -> None:
        """Send the next exchange before what the last one brought is handed out: the answer comes meanwhile.

        Only when the last look was filled, and there is room for as much again.
        """
        if not 0 < self._filled <= room or self._needs_more_than_an_exchange() or not self.lookout.is_time():
            return
        steps, fetch = self._steps(room, min(at_most, MAX_BATCH))
        assert fetch is not None  # or outcomes would be taken out, and nobody would carry them
        flight = Flight(self.client, steps, fetch)
        try:
            self._flight = flight if flight.begin() else None
        except RsmqError as error:
            self._lose(steps, error)
        else:
            if self._flight is None:
                self._put_back_steps(steps, ConnectionFailed("no socket is open"))

    def _needs_more_than_an_exchange(self) -> bool:
        scan, tray = self.lineup.scan, self.tray
        is_settled = self.lineup.is_settled and not tray.refused and not tray.late.endings
        is_scan_due = scan is not None and scan.is_due(time.monotonic())
        return self.outage.is_on or not is_settled or self._ghosts.is_due() or is_scan_due

    def look_now(self) -> None:
        """Look for messages at the next exchange: somebody sent one."""
        self.lookout.was_told = True
        self._wake()

    def suspect_cancellations(self) -> None:
        """Ask at the next exchange whether something that is held here was cancelled."""
        self.cancellations.suspect_all()
        self._wake()

    @property
    def has_endings(self) -> bool:
        """Say whether Redis does not know yet how something went, as far as anybody has heard."""
        return bool(self.tray.count) or self.is_looking

    @property
    def is_idle(self) -> bool:
        """Say whether nothing is held and nothing waits to be carried out."""
        return self.tray.is_empty and not len(self.leases) and not self.is_looking

    @property
    def holds_nothing(self) -> bool:
        """Say whether it is certain that no message has to come back from here."""
        return self.is_idle and not self._ghosts.are_likely

    @property
    def unreported(self) -> int:
        """Return how many outcomes of tasks that have run Redis does not know."""
        return sum(not isinstance(each.outcome, Released) for each in self.tray.all_endings())

    def take_cancelled(self) -> list[Execution]:
        """Return the runs of messages that were cancelled since this was last asked."""
        cancelled = self.cancellations.take(self.leases.held)
        return [delivery.execution for delivery in cancelled if delivery.execution is not None]

    @property
    def is_stuck(self) -> bool:
        """Say whether nothing is left but outcomes that a damaged queue has refused for a while."""
        return self.tray.is_stuck(len(self.leases))

    def forget(self, deliveries: Sequence[Delivery], *, struck: Sequence[str]) -> None:
        """Hold messages no longer: Redis knows their outcomes, or there will be none."""
        self.tray.over += [batch for batch in self.leases.drop(deliveries) if batch not in struck]
        slots = []
        for delivery in deliveries:
            delivery.execution = None
            if delivery.acknowledgement is not None:
                delivery.tell_outcome()
            if delivery.slot is not None:
                slots.append(delivery.slot)
                delivery.slot = None
        if self._board is not None:
            self._board.leave(*slots)

    def next_fetch_number(self) -> int:
        """Return a number that no other fetch of this worker has."""
        return next(self._fetch_numbers)

    # -- The exchange -------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Carry out what ended, renew leases, and take messages for `room` calls: one round trip, or none when idle.

        A call takes one message, or a batch of them; in all they are `at_most`.

        Never raises for the server's troubles: what could not be carried out stays for a later exchange.
        """
        self._filled = 0
        if self._flight is not None:
            return self._land(self._flight)
        if time.monotonic() < self.outage.next_try_at:
            self.leases.expire(time.monotonic())
            return []
        if room > 0:
            self.lookout.take_turn()
        return self._exchange(room, at_most)

    def flush(self) -> None:
        """Carry out all that ended, now: it is the last chance. What cannot be carried out comes back by itself."""
        if self._flight is not None:  # nobody will run what it brings: it is given back as what was never known here
            self.forget(self._land(self._flight), struck=())
            self._ghosts.suspect(are_likely=True)
        left, failures = -1, 0
        while left and failures < MOST_LAST_FAILURES:  # once in any case: messages that nobody here knows go back, too
            before = self.tray.count
            self.tray.late.next_try_at = 0.0
            self._exchange(0)
            left = self.tray.count
            failures = 0 if left < before else failures + 1
        self._report_the_rest()

    def _report_the_rest(self) -> None:
        if self.statistics is None:
            return
        for _ in range(MOST_LAST_REPORTS):
            if self.statistics.is_empty or self.outage.is_on:
                return
            self.statistics.hurry()
            self._exchange(0)

    def _exchange(self, room: int, at_most: int = MAX_BATCH) -> list[Delivery]:
        self.tray.offer_refused_again(time.monotonic())
        steps: list[Step] = []
        fetch = None
        try:
            self.lineup.provision()
            if self._ghosts.is_due():
                self._ghosts.release(self.queues, self.leases.held())
            self._scan(room)
            steps, fetch = self._steps(room, min(at_most, MAX_BATCH))
            replies = self.client.run_many([step.call for step in steps]) if steps else []
        except RsmqError as error:
            self._lose(steps, error)
            return []
        self._read(steps, replies)
        return fetch.deliveries if fetch is not None else []

    def _land(self, flight: Flight) -> list[Delivery]:
        self._flight = None
        try:
            results = flight.results()
        except RsmqError as error:
            self._lose(flight.steps, error)
            return []
        self._read(flight.steps, results)
        return flight.fetch.deliveries

    def _put_back_steps(self, steps: Iterable[Step], error: RsmqError) -> None:
        for step in steps:
            if not isinstance(step, AftermathStep):  # it comes again with its ending
                step.failed(error)

    def _lose(self, steps: Sequence[Step], error: RsmqError) -> None:
        """Keep what nobody knows to be carried out for a later exchange."""
        self._put_back_steps(steps, error)
        # Also when the error says that nothing was sent: that may be about a second try of some of the calls.
        if any(isinstance(step, FetchStep) for step in steps):
            self._ghosts.suspect(are_likely=not isinstance(error, ConnectionFailed))
        self.lookout.look_within(0)  # whoever told us to look was not heard yet
        self.outage.note(error, at_most_s=self.leases.longest_wait_s())
        self.leases.expire(time.monotonic())

    def _scan(self, room: int) -> None:
        """Find out which of very many queues have something; when none has, that was the look."""
        scan = self.lineup.scan
        if scan is None or room <= 0 or not self.lookout.is_time() or not scan.is_due(time.monotonic()):
            return
        self.lookout.begin()
        asked_at = time.monotonic()
        found = self.client.run(scan.call)
        scan.scanned(found, time.monotonic())
        if scan.ready:
            self.lookout.look_soon()
        else:
            self.clock.set(found.server_ms, asked_at=asked_at)
            nothing = Fetched(found.server_ms, found.next_ms, found.queue_count, [], [])
            self.looked(nothing, Look(room, self.queues, [], None))

    def _let_go_steps(self) -> list[LetGoStep]:
        deliveries = self.tray.take_let_go()
        self.forget(deliveries, struck=())
        over = self.tray.take_over()
        return [LetGoStep(self, deliveries, over)] if deliveries or over else []

    def _steps_for_held(self, endings: Sequence[Ending], now: float) -> list[Step]:
        # Renewing a message whose outcome is decided could undo it: a retry would come a lease later.
        settled = self.tray.settled(endings)
        steps: list[Step] = [RenewStep(self, *renewal) for renewal in renewal_calls(self.leases.due(now, settled))]
        to_note = starts_to_note(self.leases.held(), settled, now_ms=self.clock.now_ms())
        return steps + [StartStep(ending) for ending in to_note]

    def _steps(self, room: int, at_most: int) -> tuple[list[Step], FetchStep | None]:
        now, endings = time.monotonic(), self.tray.take_endings()
        calls = ending_calls(endings, self.leases.ending_batches, self.event_log)
        steps: list[Step] = [EndStep(self, each) for each in calls]
        steps += [AftermathStep(call) for call in aftermath_calls(endings)]
        if self._starts.is_time(now) or self.leases.may_be_due(now):
            self._starts.looked(now)
            steps += self._steps_for_held(endings, now)
        if now >= self.next_beat_at:
            steps.append(BeatStep(self))
        steps += self._let_go_steps()
        question = self.cancellations.question(self.leases.held)
        if question is not None:
            steps.append(AskStep(self, *question))
        if self.statistics is not None:
            steps += self.statistics.steps()
        if self.event_log is not None and self.event_log.recent is not None:
            steps += self.event_log.recent.steps()
        if room <= 0 or self.tray.tries_late or not self.lookout.is_time():
            return steps, None
        self.lookout.begin()
        fetch = FetchStep(self, min(room, at_most), at_most)
        return [*steps, fetch], fetch

    def _read(self, steps: Sequence[Step], replies: Sequence[Any]) -> None:
        failures: list[tuple[Step, RsmqError]] = []
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, RsmqError):
                step.failed(reply)
                failures.append((step, reply))
            else:
                step.done(reply)
        if any(isinstance(error, QueueNotFound) for _, error in failures):
            self.lineup.is_provisioned = False  # somebody deleted a queue: it is created again
        # A damaged queue refuses outcomes of its own; renewals and looks have no other queue to go on with. Counters
        # that cannot be written, locks and tags that cannot be removed, or cancellations of which nobody can tell never
        # stop the work.
        trouble = [error for step, error in failures if not _is_apart(step, error)]
        if trouble:
            self.outage.note(trouble[0], at_most_s=self.leases.longest_wait_s())
        elif steps:
            self.outage.over()
            if self._board is not None:
                self._board.beat()
        if not self.tray.refused:
            self.tray.damage.over()
        if self.is_idle and any(isinstance(step, EndStep) for step in steps):
            # What has ended may have been the last message: who waits for that wants to know. What a look in the same
            # exchange has found does not tell: a script that the server did not know yet is carried out after it.
            self.lookout.look_soon()
            self.is_drained = self.is_empty = False

    def looked(self, fetched: Fetched, look: Look) -> None:
        """Note what a look found, and when the next one makes sense."""
        served = Counter[WorkQueue]()
        for portion in fetched.portions:  # of one queue there may be two
            served[look.queues[portion.position - 1]] += len(portion.ids)
        self.lineup.looked(look, served)
        found, next_s = served.total(), fetched.next_ms / 1000
        self._filled = found if found >= look.room else 0
        # What is due in less than a millisecond is as good as ready: a retry without a wait, for example.
        self.is_drained = found == 0 and next_s != 0 and not look.is_partial
        self.is_empty = self.is_drained and next_s < 0
        self._note_pauses(are_readable=0 not in fetched.unreadable)
        if unreadable := [position for position in fetched.unreadable if position]:
            names = ", ".join(look.queues[position - 1].name for position in unreadable)
            logger.error("queue %s is gone or damaged; a missing one is created again", names)
            self.lineup.is_provisioned = self.is_drained = self.is_empty = False
        if fetched.queue_count != self.lineup.known_count:
            self.lineup.bands_are_known = self.is_drained = self.is_empty = False
        may_be_more = not self.lineup.bands_are_known
        self.lookout.looked(found=found, next_s=next_s, is_partial=look.is_partial, may_be_more=may_be_more)

    def _note_pauses(self, *, are_readable: bool) -> None:
        if are_readable:
            self._pauses.over()
        else:
            self._pauses.note(BrokenQueue("it is no set, so nothing counts as paused; delete it and pause again"))

    # -- How long to wait ---------------------------------------------------------------------------------------------

    def next_exchange_at(self, room: int, *, patience_s: float = 0.0) -> float | None:
        """Return when there is something to do, on the monotonic clock; None when only an event can tell.

        Outcomes may wait for `patience_s`, so that more of them go out together.
        """
        if self.is_looking:
            return 0.0
        times = [self.next_beat_at]
        if self.tray.endings:
            times.append(time.monotonic() + patience_s if patience_s else 0.0)
        if self.tray.late.endings:
            times.append(self.tray.late.next_try_at)
        if self.tray.refused:
            times.append(self.tray.damage.next_try_at)
        if room > 0:
            times += self.lookout.times()
        renewal_at = self.leases.next_renewal_at()
        if renewal_at is not None:
            times.append(renewal_at)
        if self.tray.over or self.cancellations.has_suspects:
            times.append(0.0)
        report_at = self.statistics.next_report_at() if self.statistics is not None else None
        if report_at is not None:
            times.append(report_at)
        if self.leases.has_unnoted_start():
            times.append(self._starts.next_look_at(time.monotonic()))
        soonest = max(min(times), self.outage.next_try_at)
        return soonest if soonest < math.inf else None


def _is_apart(step: Step, error: RsmqError) -> bool:
    """Say whether a failure keeps nothing else from going on."""
    is_of_one_queue = isinstance(step, EndStep | AskStep) and is_damage(error)
    return is_of_one_queue or isinstance(step, ReportStep | AftermathStep | BeatStep | RecentStep)
