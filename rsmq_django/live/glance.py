"""The contents of the list of queues, read in one round trip per server when the list has not changed.

The queues and workers of a page are known only after their names were read. So the names are read together with
everything that the page needed the last time (`remembered.py`), and only missing data takes a second round trip: at the
first request, and when queues or workers were added or removed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from ..conf.settings import get_settings
from ..core import Client
from ..core.errors import RedisFailure, RsmqError
from ..core.queue.listing import MAX_QUEUES, QueueSummary, WorkerBeat, depths, workers
from ..core.queue.pause import paused
from ..core.queue.queue import list_call
from ..core.stats.depth import Depth
from ..core.stats.history import Window
from ..core.stats.moments import Moment, moment_calls, moments
from ..core.tasks.processes import ProcessRecord, read_processes
from ..core.transport.call import Call
from ..queues import get_client
from .history import SPANS_S, Past, moments_that_are_over, remember_moments
from .places import QueueRef, by_client, in_order
from .processes import is_alive
from .remembered import Guess
from .servers import from_each, overview_call

NO_MESSAGES = Depth(in_flight=0)
#: A call, and the function that receives its reply.
Step = tuple[Call[Any], Callable[[Any], None]]


class Glance:
    """One reading of all servers: the names first, the rest as far as it was expected, or when it is requested."""

    def __init__(self, guess: Guess, span: str, notes: list[str]) -> None:
        self.span, self.now_s = span, time.time()
        self._summaries: dict[QueueRef, QueueSummary] = {}
        self._asked: dict[QueueRef, None] = {}
        #: Of the queues on the page, with the number of messages in flight.
        self.depths: dict[QueueRef, Depth] = {}
        self._moments: dict[str, tuple[Sequence[QueueRef], dict[int, Moment]]] = {}
        self._beats: dict[str, list[WorkerBeat]] = {}
        self._records: dict[str, dict[str, ProcessRecord]] = {}
        self._paused_names: dict[str, frozenset[str]] = {}
        self._guess = guess if guess.settings is get_settings() else Guess()
        named = from_each(self._look, notes)
        #: Every queue of every connection that answered, sorted by name.
        self.places = in_order(place for places in named for place in places)

    # -- The first round trip -----------------------------------------------------------------------------------------

    def _look(self, alias: str, client: Client) -> list[QueueRef]:
        guess, names = self._guess, list[str]()
        read = [place for place in guess.read if place.alias == alias]
        shown = [place for place in guess.shown if place.alias == alias]
        steps: list[Step] = [
            (list_call(client.namespace), names.extend),
            (paused(client.namespace), lambda answer: self._paused_names.update({alias: answer})),
            (workers(client.namespace), lambda answer: self._beats.update({alias: answer})),
            *self._summary_steps(read),
            *self._detail_steps(alias, client, shown),
            *self._record_steps(alias, client, guess.worker_ids.get(alias, ())),
        ]
        try:
            run(client, steps)
        except RedisFailure:
            self._moments.pop(alias, None)  # remembered data must not look like current data
            raise
        return [QueueRef(alias, name) for name in names]

    def _summary_steps(self, places: Sequence[QueueRef]) -> Iterator[Step]:
        for at in range(0, len(places), MAX_QUEUES):
            part = places[at : at + MAX_QUEUES]
            yield overview_call(part), partial(self._keep_summaries, part)

    def _keep_summaries(self, places: Sequence[QueueRef], answer: Sequence[QueueSummary]) -> None:
        self._summaries.update(zip(places, answer, strict=True))

    def _detail_steps(self, alias: str, client: Client, places: Sequence[QueueRef]) -> Iterator[Step]:
        part = places[:MAX_QUEUES]
        if not part:
            return
        names = [place.name for place in part]
        dead = dict.fromkeys(place.dead_letters for place in part)
        yield from self._summary_steps([place for place in dead if place is not None and place not in self._summaries])
        yield (
            depths(client.namespace, names, with_in_flight=True),
            lambda answer: self.depths.update((place, answer.get(place.name, NO_MESSAGES)) for place in part),
        )
        window = Window.of(self.now_s - SPANS_S[self.span], self.now_s)
        known = moments_that_are_over(client, tuple(names), window)
        found = dict[int, Moment]()
        self._moments[alias] = (part, found)
        for begins_s, call in moment_calls(client.namespace, names, window).items():
            if begins_s in known:
                found[begins_s] = known[begins_s]
            else:
                yield call, partial(found.__setitem__, begins_s)

    def _record_steps(self, alias: str, client: Client, worker_ids: Sequence[str]) -> Iterator[Step]:
        if worker_ids:
            yield read_processes(client.namespace, worker_ids), self._records.setdefault(alias, {}).update

    # -- Data of the pages --------------------------------------------------------------------------------------------

    def summaries_of(self, places: Sequence[QueueRef]) -> dict[QueueRef, QueueSummary]:
        """Return the data of queues for lists; data that was not expected is read now."""
        self._asked |= dict.fromkeys(places)
        missing = [place for place in places if place not in self._summaries]
        for group in by_client(missing).values():
            run(group[0].client, list(self._summary_steps(group)))
        return {place: self._summaries[place] for place in places}

    def is_paused(self, place: QueueRef) -> bool:
        """Return whether workers receive nothing from a queue. A priority band pauses with its queue."""
        return get_settings().base_name(place.name) in self._paused_names.get(place.alias, ())

    def show(self, places: Sequence[QueueRef]) -> None:
        """Read the data of the rows on a page, unless it was read already. Servers that do not answer have none."""
        shown = by_client(places)
        self._moments = {alias: found for alias, found in self._moments.items() if alias in shown}
        for alias, group in shown.items():
            group, client = group[:MAX_QUEUES], group[0].client
            steps: list[Step] = []
            if self._moments.get(alias, ((), {}))[0] != group:
                steps += self._detail_steps(alias, client, group)
            known = self._records.get(alias, {})
            alive = [beat.worker_id for beat in self._beats.get(alias, ()) if is_alive(beat)]
            if not set(alive) <= {*self._guess.worker_ids.get(alias, ()), *known}:
                steps += self._record_steps(alias, client, alive)
            try:
                run(client, steps)
            except RedisFailure:
                self._moments.pop(alias, None)

    def dead(self, place: QueueRef) -> int | None:
        """Return the number of dead letters of a queue; None when its dead-letter queue is unknown."""
        dead_letters = place.dead_letters
        summary = self._summaries.get(dead_letters) if dead_letters is not None else None
        return summary.depth.messages if summary is not None and summary.attributes is not None else None

    def past(self) -> Past:
        """Return the recent history of the queues on the page."""
        window = Window.of(self.now_s - SPANS_S[self.span], self.now_s)
        past = Past.empty(window)
        for alias, (group, found) in self._moments.items():
            remember_moments(get_client(alias), tuple(place.name for place in group), window, self.now_s, found)
            for at, moment in enumerate(moments([found[begins_s] for begins_s in sorted(found)])):
                past.add(at, moment, group)
        return past

    def processes(self, place: QueueRef) -> int:
        """Return how many live processes consume a queue; for a priority band, how many consume its queue."""
        return self._serving[place.alias, get_settings().base_name(place.name)]

    @cached_property
    def _serving(self) -> Counter[tuple[str, str]]:
        found = Counter[tuple[str, str]]()
        for alias, beats in self._beats.items():
            records = self._records.get(alias, {})
            for record in (records.get(beat.worker_id) for beat in beats if is_alive(beat)):
                if record is not None and record.state == "working":
                    found.update((alias, name) for name in record.queues)
        return found

    def guess(self, shown: Iterable[QueueRef]) -> Guess:
        """Return the expected contents of the next request for the same page."""
        return Guess(
            get_settings(),
            tuple(self._asked),
            tuple(shown),
            {alias: tuple(beat.worker_id for beat in beats) for alias, beats in self._beats.items()},
        )


def run(client: Client, steps: Sequence[Step]) -> None:
    """Run calls in one round trip and pass each reply to its receiver. Raises the first error."""
    if not steps:
        return
    for (_call, keep), answer in zip(steps, client.run_many([call for call, _keep in steps]), strict=True):
        if isinstance(answer, RsmqError):
            raise answer
        keep(answer)
