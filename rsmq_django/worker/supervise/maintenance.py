"""Maintenance of a supervisor on one connection: heartbeats, renewals, and recovery of messages of dead processes.

Each connection has its own Maintenance, so that an unavailable server delays nothing on another one. Its calls wait
for two seconds at most: the supervisor has one thread, and a stop must not wait. Calls that are due on several
connections to one server, the shards of a queue for example, are sent in one request. Data that grow with the number of
queues are read in slices, or last.

The depths of queues are sampled for charts, one slice of the queues at a time: no other job depends on them. Of several
supervisors of the same queues one samples; another goes on within half a minute when it has ended.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

from ...conf.settings import QueueSettings, get_settings
from ...core import Client, Queue, RsmqError
from ...core.errors import BrokenQueue, ConnectionFailed, OutcomeUnknown, QueueNotFound, RedisFailure
from ...core.keys import worker_key
from ...core.log_lines import get_logger
from ...core.stats.counters import claim_samples, sample
from ...core.texts import counted
from ...core.transport.backoff import LONGEST_WAIT_S, ReconnectBackoff
from ...core.transport.client import raise_or_return
from ...core.transport.shared_exchanges import Exchanges, run_side_by_side
from ...queues import get_client
from ..delivery import WorkQueue
from ..fetch.queues import in_shards
from ..lease.inflight import (
    DEAD_AFTER_S,
    HEARTBEAT_EVERY_S,
    StillAlive,
    expire_inflight,
    forget_dead,
    heartbeat_call,
    held_batches,
    queues_of,
    read_inflight,
)
from ..lease.leases import Renewal
from ..report.statistics import Statistics
from .control import ProcessControl
from .recovery import Death, recover
from .scheduler import Scheduler

logger = get_logger(__name__)

#: The longest wait for a reply.
CALL_TIMEOUT_S = 2.0
#: A supervisor cut off for this time assumes that the others were, too (server down or full, or its clock jumped) ...
CUT_OFF_S = DEAD_AFTER_S / 2
#: ... and gives them this time to send a heartbeat.
RETURN_WAIT_S = 2 * HEARTBEAT_EVERY_S
#: The last fetch of a killed process may still be in the server's socket when its record is read: check again then.
LOOK_AGAIN_AFTER_S = (1.0, 5.0)
#: Interval of samples of the queue depths: a few in each minute, so that peaks are visible.
SAMPLE_EVERY_S = 15.0
#: Queues per round trip, and the time between two: samples take at most a twentieth of the time of a server. A round
#: of more than 7,500 queues takes longer than SAMPLE_EVERY_S.
SAMPLED_AT_A_TIME, SLICE_EVERY_S = 250, 0.5


class PeriodicJob:
    """A job that is run repeatedly. It takes the ids of the living processes and returns when to run it next."""

    def __init__(
        self,
        what: str,
        do: Callable[[Sequence[str]], Exchanges[float]],
        *,
        at_most_s: Callable[[], float] | None = None,
    ) -> None:
        self.do = do
        #: Returns the maximum wait after a failure.
        self._at_most_s = at_most_s or (lambda: LONGEST_WAIT_S)
        self._due_at = 0.0
        self._backoff = ReconnectBackoff(what)

    @property
    def due_at(self) -> float:
        """The time of the next run, on the monotonic clock."""
        return max(self._due_at, self._backoff.next_try_at)

    def run(self, living: Sequence[str], now: float) -> Exchanges[None]:
        """Run the job. Raises errors that mean that the server is unavailable; other errors affect only this job."""
        try:
            self._due_at = now + (yield from self.do(living))
        except (ConnectionFailed, OutcomeUnknown):
            raise
        except RsmqError as error:
            self._backoff.note(error, at_most_s=self._at_most_s())
        except Exception as error:  # a defect of this library: the other jobs, above all the renewal, must continue
            if not self._backoff.is_on:
                logger.exception("supervisor maintenance failed")
            self._backoff.note(error, at_most_s=self._at_most_s())
        else:
            self._backoff.over()


class Maintenance:
    """Maintains the messages and records of the worker processes on one connection."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[QueueSettings],
        *,
        max_crashes: int,
        fires_schedules: bool = False,
        process_control: ProcessControl | None = None,
        reliable: Sequence[str] = (),
    ) -> None:
        connection = client.connection.with_timeout(min(client.connection.timeout_s, CALL_TIMEOUT_S))
        self.client = Client(connection, namespace=client.namespace)
        self._connection = queues[0].connection if queues else ""
        #: Queues by name, as far as they were looked up; None for queues of other connections.
        self._found: dict[str, tuple[QueueSettings, Queue] | None] = {}
        self._max_crashes = max_crashes
        reporter = f"supervisor-{os.getpid()}-{secrets.token_hex(4)}"
        self._statistics = Statistics.from_settings(client.namespace, reporter, now_ms=lambda: time.time() * 1000)
        self._deaths: list[Death] = []
        #: Recoveries to repeat, each with its monotonic time.
        self._later: list[tuple[float, Death]] = []
        #: Server time of the latest heartbeat (ms), and the time from which other stale workers count as dead.
        self._last_beat_ms: int | None = None
        self._silence_tells_from_ms = 0.0
        self._backoff = ReconnectBackoff(f"supervisor, {connection!r}", server=connection)
        self._renewal = Renewal(self.client, queues, self._work_queues)
        self._jobs = [PeriodicJob("beats of workers", self._beat)]
        if queues:
            self._jobs.append(
                PeriodicJob("renewal of leases", self._renewal.renew, at_most_s=lambda: self._renewal.wait_s)
            )
        is_later_shard = bool(queues) and bool(queues[0].shard)  # schedules are stored in the namespace of the first
        if queues and fires_schedules and not is_later_shard:
            self._jobs.append(PeriodicJob("schedules", _by_itself(Scheduler(self.client, self._connection).fire_due)))
        names = [settings.name for settings in queues]
        if process_control is not None:
            self._jobs.append(
                PeriodicJob("records of processes", lambda _: process_control.publish(self.client, names, reliable))
            )
        if queues and get_settings().statistics.enabled:  # last: no other job depends on it
            names_of_all = sorted(
                {name for each in queues for name in (each.name, each.dead_letter) if name is not None}
            )
            lengths = DepthSampler(self.client, names_of_all, now_ms=lambda: self._last_beat_ms or time.time() * 1000)
            self._jobs.append(PeriodicJob("lengths of queues", lengths.sample_slice))

    def note_death(self, death: Death) -> None:
        """Queue the recovery of a dead process; run_due() carries it out as soon as the server is available."""
        self._deaths.append(death)
        if death.was_sudden:
            self._later += [(death.died_at + after_s, death) for after_s in LOOK_AGAIN_AFTER_S]

    def run_due(self, living: Sequence[str], now: float) -> Exchanges[None]:
        """Run the jobs that are due. Never raises errors of the server."""
        if now < self._backoff.next_try_at:
            return
        self._deaths += [death for at, death in self._later if now >= at]
        self._later = [(at, death) for at, death in self._later if now < at]
        due = [chore for chore in self._jobs if living and now >= chore.due_at]
        if not due and not self._deaths:
            return
        try:
            yield from self._recover_dead_workers()
            for chore in due:
                yield from chore.run(living, now)
            self._report()
        except RsmqError as error:
            self._backoff.note(error, at_most_s=self._renewal.wait_s if living else LONGEST_WAIT_S)
        else:
            self._backoff.over()

    def next_check_at(self, *, has_children: bool) -> float | None:
        """Return when the next job is due, on the monotonic clock; None when there is none."""
        times = [0.0] if self._deaths else [at for at, _ in self._later]
        times += [chore.due_at for chore in self._jobs] if has_children else []
        return max(min(times), self._backoff.next_try_at) if times else None

    def close(self) -> None:
        """Log messages that stay leased until their leases expire, because the server is unavailable."""
        for death in self._deaths:
            if not death.held_nothing:
                logger.error("messages leased by %s become visible when their leases expire", death.worker_id)
        self.client.connection.close()

    # -- Jobs ---------------------------------------------------------------------------------------------------------

    def _recover_dead_workers(self) -> Exchanges[None]:
        for death in list(self._deaths):
            inflight_key = worker_key(self.client.namespace, death.worker_id)
            try:
                (held,) = yield [held_batches(inflight_key)]
                queues = self._work_queues(inflight_key, queues_of(raise_or_return(held)))
                recover(self.client, queues, death, max_crashes=self._max_crashes, statistics=self._statistics)
            except RedisFailure as error:
                if time.monotonic() < death.died_at + self._renewal.longest_s:
                    raise  # later, when the server can do it
                logger.error(
                    "messages leased by %s became visible when their leases expired: %s", death.worker_id, error
                )
            except RsmqError as error:
                logger.error(
                    "messages leased by %s become visible when their leases expire: %s", death.worker_id, error
                )
            self._deaths.remove(death)

    def _report(self) -> None:
        """Send the statistics and events about messages of dead processes."""
        if self._statistics is None or self._statistics.is_empty:
            return
        self._statistics.flush_soon()
        self._statistics.report_to(self.client)

    def _beat(self, living: Sequence[str]) -> Exchanges[float]:
        known = {*living, *(death.worker_id for death in self._deaths)}
        (reply,) = yield [heartbeat_call(self.client, living)]
        server_ms, silent = raise_or_return(reply)
        if self._last_beat_ms is not None and server_ms - self._last_beat_ms > CUT_OFF_S * 1000:
            self._silence_tells_from_ms = server_ms + RETURN_WAIT_S * 1000
        self._last_beat_ms = server_ms
        for worker_id in silent if server_ms >= self._silence_tells_from_ms else ():
            if worker_id not in known:
                self._recover_stale_worker(worker_id)
        return HEARTBEAT_EVERY_S

    def _recover_stale_worker(self, worker_id: str) -> None:
        """Recover the messages of a stale worker whose supervisor is stale too, perhaps with its whole machine."""
        inflight_key = worker_key(self.client.namespace, worker_id)
        count = 0
        try:
            holds = read_inflight(self.client, inflight_key)
            if holds and not self._connection:
                return  # a supervisor of reliable queues only can recover nothing, and leaves the record to others
            queues = self._work_queues(inflight_key, {entry.queue_name for entry in holds})
            count = expire_inflight(self.client, queues, worker_id, holds)
        except StillAlive:
            return
        except (BrokenQueue, QueueNotFound) as error:
            logger.error("messages leased by worker %s become visible when their leases expire: %s", worker_id, error)
        forget_dead(self.client, worker_id)
        logger.warning("worker %s is stale: recovered %s", worker_id, counted(count))

    # -- Queues -------------------------------------------------------------------------------------------------------

    def _work_queues(self, inflight_key: str, names: Iterable[str]) -> list[WorkQueue]:
        found = [each for each in map(self._find, names) if each is not None]
        return [WorkQueue(each, queue, float(each.visibility_timeout_s), inflight_key) for each, queue in found]

    def _find(self, name: str) -> tuple[QueueSettings, Queue] | None:
        if name not in self._found:
            known = self._connection and get_settings().knows_queue(name)
            settings = get_settings().queue_on(name, self._connection) if known else None
            self._found[name] = None
            if settings is not None:
                queue = Queue(name, self.client, realtime=True, vt_unit=settings.vt_unit)
                self._found[name] = settings, queue
        return self._found[name]


def run_due(every_maintenance: Sequence[Maintenance], living: Sequence[str]) -> None:
    """Run the jobs that are due, on all connections at a time. Never raises errors of a server."""
    now = time.monotonic()
    run_side_by_side((each.client, each.run_due(living, now)) for each in every_maintenance)


def _by_itself(do: Callable[[Sequence[str]], float]) -> Callable[[Sequence[str]], Exchanges[float]]:
    """Return a job that shares no exchange."""

    def run(living: Sequence[str]) -> Exchanges[float]:
        yield from ()
        return do(living)

    return run


def make_maintenance(
    queues: Sequence[QueueSettings],
    *,
    max_crashes: int,
    fires_schedules: bool = False,
    process_control: ProcessControl | None = None,
    reliable: Sequence[str] = (),
) -> list[Maintenance]:
    """Return the maintenance of each connection that has one of these queues or reliable queues."""
    by_connection: dict[str, list[QueueSettings]] = {}
    for settings in in_shards(queues):
        by_connection.setdefault(settings.connection, []).append(settings)
    reliable_by_connection: dict[str, list[str]] = {}
    for name in reliable:
        reliable_by_connection.setdefault(get_settings().reliable[name].connection, []).append(name)
    return [
        Maintenance(
            get_client(alias),
            by_connection.get(alias, []),
            max_crashes=max_crashes,
            fires_schedules=fires_schedules,
            process_control=process_control,
            reliable=reliable_by_connection.get(alias, []),
        )
        for alias in {**by_connection, **reliable_by_connection}
    ]


class DepthSampler:
    """Samples the depths of these queues on one connection; `now_ms` is the server's time."""

    def __init__(self, client: Client, names: Sequence[str], *, now_ms: Callable[[], float]) -> None:
        self._client = client
        self._names = names
        self._now_ms = now_ms
        #: The position of the next queue, and when the next round begins.
        self._at = 0
        self._next_round_at = 0.0
        # Until shortly before the next round: whoever comes first then has it.
        slices = -(-len(names) // SAMPLED_AT_A_TIME)
        claimed_s = max(SAMPLE_EVERY_S, slices * SLICE_EVERY_S) - SLICE_EVERY_S
        self._claim = claim_samples(client.namespace, names, for_ms=int(claimed_s * 1000))

    def sample_slice(self, living: Sequence[str] = ()) -> Exchanges[float]:
        """Sample the depths of the next queues and return the number of seconds until the next slice."""
        began_at = time.monotonic()
        if self._at == 0:
            self._next_round_at = began_at + SAMPLE_EVERY_S
            (is_ours,) = yield [self._claim]
            if is_ours is False:  # after an error, too many samples are better than none
                return SAMPLE_EVERY_S
        part = self._names[self._at : self._at + SAMPLED_AT_A_TIME]
        at_s = self._now_ms() / 1000
        replies = yield [sample(self._client.namespace, name, at_s=at_s) for name in part]
        self._at = self._at + SAMPLED_AT_A_TIME if self._at + SAMPLED_AT_A_TIME < len(self._names) else 0
        for reply in replies:
            raise_or_return(reply)  # for example a damaged queue: the next call continues after this slice
        next_slice_at = began_at + SLICE_EVERY_S
        next_at = next_slice_at if self._at else max(next_slice_at, self._next_round_at)
        return max(0.0, next_at - time.monotonic())
