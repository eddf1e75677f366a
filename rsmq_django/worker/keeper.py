"""What a supervisor does on one connection: it says who lives, renews their leases, and frees what the dead held.

Each connection has a keeper of its own, so that a server that cannot be reached holds up nothing on another one. Its
calls wait two seconds at most: the supervisor has one thread, and a stop must not wait.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

from ..conf import QueueSettings, get_settings
from ..core import Client, Queue, RsmqError
from ..core.bands import bands_of, by_queue
from ..core.counters import sample
from ..core.errors import BrokenQueue, ConnectionFailed, OutcomeUnknown, QueueNotFound, RedisFailure
from ..core.keys import worker_key
from ..queues import get_client
from .crew import Crew
from .delivery import WorkQueue
from .holds import BEAT_EVERY_S, DEAD_AFTER_S, beat, expire_holds, forget, read_holds, renew_holds
from .lineup import read_names
from .outage import Outage
from .provision import SHORTEST_LEASE_S
from .recovery import Death, recover
from .scheduler import Scheduler
from .statistics import Statistics

logger = logging.getLogger(__name__)

#: The longest wait for a reply.
CALL_TIMEOUT_S = 2.0
#: Who was cut off for so long assumes that the others were, too (the server was down or full, its clock jumped) ...
CUT_OFF_S = DEAD_AFTER_S / 2
#: ... and gives them this time to say that they live.
RETURN_WAIT_S = 2 * BEAT_EVERY_S
#: The last fetch of a killed child may still wait in the server's socket when its record is read: look again then.
LOOK_AGAIN_AFTER_S = (1.0, 5.0)
#: How often the lengths of queues are noted for charts: a few times in each minute, so that peaks show.
NOTE_LENGTHS_EVERY_S = 15.0
#: The longest time between two renewals; also the time in which a changed visibility timeout is noticed.
LONGEST_RENEWAL_WAIT_S = 10.0


class Chore:
    """Something to be done again and again. It takes the ids of the living children and says when to do it next."""

    def __init__(self, what: str, do: Callable[[Sequence[str]], float]) -> None:
        self.do = do
        self._due_at = 0.0
        self._outage = Outage(what)

    @property
    def due_at(self) -> float:
        """When to do it, on the monotonic clock."""
        return max(self._due_at, self._outage.next_try_at)

    def run(self, living: Sequence[str]) -> None:
        """Do it. Raises what says that the server cannot be reached; everything else concerns this chore alone."""
        try:
            self._due_at = time.monotonic() + self.do(living)
        except (ConnectionFailed, OutcomeUnknown):
            raise
        except RsmqError as error:
            self._outage.note(error)
        except Exception as error:  # a mistake of ours: the other chores, above all the renewal, must go on
            if not self._outage.is_on:
                logger.exception("a chore of the supervisor failed")
            self._outage.note(error)
        else:
            self._outage.over()


class Keeper:
    """Looks after the children's messages and records on one connection."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[QueueSettings],
        *,
        max_crashes: int,
        fires_schedules: bool = False,
        crew: Crew | None = None,
        reliable: Sequence[str] = (),
    ) -> None:
        connection = client.connection.with_timeout(min(client.connection.timeout_s, CALL_TIMEOUT_S))
        self._client = Client(connection, namespace=client.namespace)
        self._configured = [settings.name for settings in queues]
        self._queues: list[tuple[QueueSettings, Queue]] = []
        self._lease_s: dict[str, float] = {}
        self._add(self._configured)
        self._max_crashes = max_crashes
        reporter = f"supervisor-{os.getpid()}-{secrets.token_hex(4)}"
        self._statistics = Statistics.from_settings(client.namespace, reporter, now_ms=lambda: time.time() * 1000)
        self._deaths: list[Death] = []
        #: Monotonic time at which to look once more, and at whose record.
        self._later: list[tuple[float, Death]] = []
        #: Server time of the latest beat (ms), and from when on the silence of others means that they are dead.
        self._last_beat_ms: int | None = None
        self._silence_tells_from_ms = 0.0
        self._outage = Outage(f"supervisor, {connection!r}")
        self._chores = [Chore("beats of workers", self._beat)]
        if self._queues:
            self._chores.append(Chore("renewal of leases", self._renew))
        if self._queues and get_settings().statistics.enabled:
            self._chores.append(Chore("lengths of queues", self._note_lengths))
        if crew is not None:
            self._chores.append(
                Chore("records of processes", lambda _: crew.present(self._client, self._configured, reliable))
            )
        if self._queues and fires_schedules:
            self._chores.append(Chore("schedules", Scheduler(self._client, queues[0].connection).look))

    def _add(self, names: Iterable[str]) -> None:
        for settings in map(get_settings().queue, names):
            queue = Queue(settings.name, self._client, realtime=True, vt_unit=settings.vt_unit)
            self._queues.append((settings, queue))
            self._lease_s[settings.name] = float(settings.visibility_timeout_s)

    def _find_bands(self) -> None:
        """Look after the priority bands, too, that have come into use."""
        try:
            names = self._client.run(read_names(self._client.namespace))
        except BrokenQueue:
            return  # another program uses the key of the list: the children say so, and leases go on
        grouped = by_queue(names)
        found = [band for name in self._configured for band in bands_of(name, grouped.get(name, ()))]
        self._add(band for band in found if band not in self._lease_s)

    def note_death(self, death: Death) -> None:
        """Take over the messages of a child that died; look() frees them, as soon as the server can be reached."""
        self._deaths.append(death)
        if death.was_sudden:
            self._later += [(death.died_at + after_s, death) for after_s in LOOK_AGAIN_AFTER_S]

    def look(self, living: Sequence[str]) -> None:
        """Do what is due. Never raises for the server's troubles."""
        now = time.monotonic()
        if now < self._outage.next_try_at:
            return
        self._deaths += [death for at, death in self._later if now >= at]
        self._later = [(at, death) for at, death in self._later if now < at]
        due = [chore for chore in self._chores if living and now >= chore.due_at]
        if not due and not self._deaths:
            return
        try:
            self._find_bands()
            for chore in due:
                chore.run(living)
            self._free_the_dead()
            self._report()
        except RsmqError as error:
            self._outage.note(error)
        else:
            self._outage.over()

    def next_look_at(self, *, has_children: bool) -> float | None:
        """Return when something is due, on the monotonic clock; None when nothing is."""
        times = [0.0] if self._deaths else [at for at, _ in self._later]
        times += [chore.due_at for chore in self._chores] if has_children else []
        return max(min(times), self._outage.next_try_at) if times else None

    def close(self) -> None:
        """Say which messages have to wait for the end of their leases because the server cannot be reached."""
        for death in self._deaths:
            if not death.held_nothing:
                logger.error("what %s held comes back when its leases are over", death.worker_id)
        self._client.connection.close()

    # -- The chores ---------------------------------------------------------------------------------------------------

    def _free_the_dead(self) -> None:
        for death in list(self._deaths):
            try:
                recover(
                    self._client,
                    self._work_queues(death.worker_id),
                    death,
                    max_crashes=self._max_crashes,
                    statistics=self._statistics,
                )
            except RedisFailure as error:
                if time.monotonic() < death.died_at + max(self._lease_s.values(), default=0.0):
                    raise  # later, when the server can do it
                logger.error("what %s held has come back by itself: %s", death.worker_id, error)
            except RsmqError as error:
                logger.error("what %s held comes back when its leases are over: %s", death.worker_id, error)
            self._deaths.remove(death)

    def _report(self) -> None:
        """Report what became of the messages of dead children."""
        if self._statistics is None or self._statistics.is_empty:
            return
        self._statistics.hurry()
        self._statistics.report_to(self._client)

    def _note_lengths(self, living: Sequence[str]) -> float:
        names = {settings.name for settings, _ in self._queues} | {settings.dead_letter for settings, _ in self._queues}
        at_s = (self._last_beat_ms or time.time() * 1000) / 1000
        calls = [sample(self._client.namespace, name, at_s=at_s) for name in sorted(names)]
        for reply in self._client.run_many(calls):
            if isinstance(reply, RsmqError):
                raise reply
        return NOTE_LENGTHS_EVERY_S

    def _beat(self, living: Sequence[str]) -> float:
        known = {*living, *(death.worker_id for death in self._deaths)}
        server_ms, silent = beat(self._client, living)
        if self._last_beat_ms is not None and server_ms - self._last_beat_ms > CUT_OFF_S * 1000:
            self._silence_tells_from_ms = server_ms + RETURN_WAIT_S * 1000
        self._last_beat_ms = server_ms
        for worker_id in silent if server_ms >= self._silence_tells_from_ms else ():
            if worker_id not in known:
                self._free_stranger(worker_id)
        return BEAT_EVERY_S

    def _free_stranger(self, worker_id: str) -> None:
        """Free what a worker held whose supervisor is gone too, perhaps with its whole machine."""
        queues, count = self._work_queues(worker_id), 0
        holds_key = worker_key(self._client.namespace, worker_id)
        try:
            holds = read_holds(self._client, holds_key)
            if holds and not queues:
                return  # who works on reliable queues only can free nothing, and leaves the record to others
            count = expire_holds(self._client, queues, holds_key, holds)
        except (BrokenQueue, QueueNotFound) as error:
            logger.error("what worker %s held comes back when its leases are over: %s", worker_id, error)
        forget(self._client, worker_id, with_record=True)
        logger.warning("worker %s has been silent for too long; %d messages of it are free again", worker_id, count)

    def _renew(self, living: Sequence[str]) -> float:
        """Renew the leases of all children and return in how many seconds to do it again: half of the shortest.

        The children renew for themselves at a third of a lease; this is for those that cannot.
        """
        self._read_leases()
        for worker_id in living:
            renew_holds(self._client, self._work_queues(worker_id), worker_key(self._client.namespace, worker_id))
        return min(LONGEST_RENEWAL_WAIT_S, *(lease_s / 2 for lease_s in self._lease_s.values()))

    def _read_leases(self) -> None:
        for settings, queue in self._queues:
            try:
                stored_s = queue.attributes().visibility_timeout_s
            except (BrokenQueue, QueueNotFound):
                continue  # a child reports it and creates a missing one again; leases of other queues go on
            self._lease_s[settings.name] = max(SHORTEST_LEASE_S, stored_s)

    def _work_queues(self, worker_id: str) -> list[WorkQueue]:
        holds_key = worker_key(self._client.namespace, worker_id)
        return [WorkQueue(each, queue, self._lease_s[each.name], holds_key) for each, queue in self._queues]


def make_keepers(
    queues: Sequence[QueueSettings],
    *,
    max_crashes: int,
    fires_schedules: bool = False,
    crew: Crew | None = None,
    reliable: Sequence[str] = (),
) -> list[Keeper]:
    """Return a keeper for each connection that these queues, and reliable queues of these names, are on."""
    by_connection: dict[str, list[QueueSettings]] = {}
    for settings in queues:
        by_connection.setdefault(settings.connection, []).append(settings)
    reliable_by_connection: dict[str, list[str]] = {}
    for name in reliable:
        reliable_by_connection.setdefault(get_settings().reliable[name].connection, []).append(name)
    return [
        Keeper(
            get_client(alias),
            by_connection.get(alias, []),
            max_crashes=max_crashes,
            fires_schedules=fires_schedules,
            crew=crew,
            reliable=reliable_by_connection.get(alias, []),
        )
        for alias in {**by_connection, **reliable_by_connection}
    ]
