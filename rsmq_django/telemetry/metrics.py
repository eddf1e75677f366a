"""Prometheus metrics, read from Redis at each scrape. Needs the extra `rsmq-django[metrics]`.

Depths are read from the queues, and statistics from the counters of workers: any process can answer, and the numbers
cover all workers on all machines. This module defines the names of metrics, and stores no numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.apps import apps
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ..conf.settings import aliases_of, get_settings
from ..core import Client, RsmqError, list_queues
from ..core.errors import RedisFailure
from ..core.queue.listing import WorkerBeat, workers
from ..core.queue.pause import paused
from ..core.stats.cardinality import MOST_QUEUES, OTHER
from ..core.stats.depth import Depth, together
from ..core.stats.depths import NamedDepth, read_depths, read_other_depths
from ..core.stats.events import LogState
from ..core.stats.events import state as log_state
from ..core.stats.histogram import Histogram
from ..core.stats.history import COUNTERS, Counts, read_totals
from ..core.tasks.schedules import Listing, list_entries
from ..core.transport.call import Call
from ..live.processes import records_at_work, slots_in_use, worker_counts
from ..live.tasks import known_names
from ..queues import get_client

__all__ = ["metrics", "metrics_with_token", "registry"]

T = TypeVar("T")

#: Upper bounds of the buckets for Prometheus, in seconds, from a millisecond to an hour: six hundred buckets would be
#: too many for thousands of series.
BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
OUTCOMES = tuple(name for name in COUNTERS if name not in ("sent", "started", "interrupted"))


@dataclass(frozen=True, slots=True)
class Scrape:
    """The data read from one connection."""

    alias: str
    #: Queues, reliable queues and topic groups.
    queues: dict[str, Depth]
    #: Reliable queues and topic groups.
    others: list[NamedDepth]
    paused: frozenset[str]
    #: By queue, then by task.
    totals: dict[str, dict[str, Counts]]
    workers: list[WorkerBeat]
    #: Live processes by the queue of the settings that they consume; a band or lane has those of its queue.
    consumers: dict[str, int]
    #: Busy and all slots of live processes, by their queues and the kind of slots.
    slots: dict[tuple[str, str], tuple[int, int]]
    schedules: Listing
    log: LogState


class RsmqCollector(Collector):
    """Reads the connections of the settings (all, or the given ones) at each scrape. A failed one has `rsmq_up 0`."""

    def __init__(self, aliases: Sequence[str] | None = None) -> None:
        self._aliases = aliases

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registration does not access Redis."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        for metric in self._collected():
            for at, sample in enumerate(metric.samples):
                if not all(map(str.isascii, sample.labels.values())):
                    labels = {name: _encodable(text) for name, text in sample.labels.items()}
                    metric.samples[at] = sample._replace(labels=labels)
            yield metric

    def _collected(self) -> Iterator[Metric]:
        aliases = list(get_settings().connections) if self._aliases is None else self._aliases
        up = GaugeMetricFamily("rsmq_up", "Whether the server of a connection answered.", labels=["connection"])
        scrapes = []
        for alias in aliases:
            try:
                scrapes.append(read_connection(alias, get_client(alias)))
                up.add_metric([alias], 1)
            except RsmqError:
                up.add_metric([alias], 0)
        yield up
        yield from _queue_metrics(scrapes)
        yield from _attempt_metrics(scrapes)
        yield from _worker_metrics(scrapes)
        yield from _schedule_metrics(scrapes)
        yield from _event_metrics(scrapes)
        for config in apps.get_app_configs():
            if path := getattr(config, "rsmq_metrics", ""):  # of a higher layer, and in few projects
                yield from import_string(path)(aliases)


def _encodable(text: str) -> str:
    r"""Return a name as UTF-8 can encode it: other programs may write any bytes, of which one becomes \udcff."""
    return text.encode("utf-8", "backslashreplace").decode()


def metrics(request: HttpRequest) -> HttpResponse:
    """Respond to a scrape. Protect this view from the public: it shows the names of queues and tasks."""
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry()), content_type=content_type)


def metrics_with_token(token: str) -> Callable[[HttpRequest], HttpResponse]:
    """Return the view metrics() for requests with the header `Authorization: Bearer <token>`; others get 401.

    Raises ValueError for an empty token, which would protect nothing.
    """
    if not token:
        raise ValueError("the token of the metrics view is empty; give it a secret text")

    @login_not_required  # a scraper has the token only
    def view(request: HttpRequest) -> HttpResponse:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not constant_time_compare(given.strip(), token):
            return HttpResponse("a token is needed\n", status=401, headers={"WWW-Authenticate": "Bearer"})
        return metrics(request)

    return view


def registry() -> CollectorRegistry:
    """Return a registry with the metrics of this package only."""
    own = CollectorRegistry()
    own.register(RsmqCollector())
    return own


def read_connection(alias: str, client: Client) -> Scrape:
    """Return the data of one connection, without queues that cannot be read."""
    queues = _by_name(read_depths(client, list_queues(client)))
    has_others = alias in get_settings().own_connections  # the namespaces of shards have queues only
    others = [each for each in read_other_depths(client) if each.name not in queues] if has_others else []
    counted = [*queues, *(each.name for each in others)]
    queues |= _by_name(others)
    shown = shown_queues(queues)
    return Scrape(
        alias,
        shown,
        others,
        _read(client, paused(client.namespace), frozenset()),
        _totals(client, counted, shown),
        _read(client, workers(client.namespace), []),
        *_consumers(alias, client, shown),
        _read(client, list_entries(client.namespace), Listing(0, {})),
        _read(client, log_state(client.namespace), LogState(0, None, 0, None, None)),
    )


def _consumers(
    alias: str, client: Client, shown: Iterable[str]
) -> tuple[dict[str, int], dict[tuple[str, str], tuple[int, int]]]:
    """Return how many live processes consume each queue of the settings that workers have to consume, and their slots.

    So do the shown bands and lanes of these queues, each with the processes of its queue.
    """
    settings = get_settings()
    try:
        at_work = records_at_work(client)
    except RedisFailure:
        raise
    except RsmqError:
        return {}, {}
    counted, slots = worker_counts(at_work), slots_in_use(at_work)
    queues = {each.name for each in settings.queues.values() if alias in aliases_of(each) and not each.for_others}
    bands = {name for name in shown if settings.base_name(name) in queues}
    reliable = {each.name for each in settings.reliable.values() if each.connection == alias}
    return {name: counted[settings.base_name(name)] for name in sorted(queues | bands | reliable)}, slots


def _by_name(found: Sequence[NamedDepth]) -> dict[str, Depth]:
    return {each.name: each.depth for each in found if not isinstance(each.depth, RsmqError)}


def shown_queues(queues: dict[str, Depth]) -> dict[str, Depth]:
    """Return up to MOST_QUEUES queues, those of the settings first, then the longest; OTHER aggregates the rest."""
    if len(queues) <= MOST_QUEUES:
        return queues
    settings = get_settings()
    ours = {*settings.queues, *settings.reliable, *settings.dead_letters}
    own = {name for name in queues if settings.base_name(name) in ours}
    ranked = sorted(queues, key=lambda name: (name not in own, -queues[name].messages, name))
    rest = [queues[name] for name in ranked[MOST_QUEUES:]]
    return {name: queues[name] for name in ranked[:MOST_QUEUES]} | {OTHER: together(rest)}


def _totals(client: Client, counted: Sequence[str], shown: Container[str]) -> dict[str, dict[str, Counts]]:
    """Return the counters of all queues; queues that are not shown are aggregated."""
    found: dict[str, dict[str, Counts]] = {}
    for queue, tasks in read_totals(client, counted, known=known_names()).items():
        if queue in shown or OTHER not in shown:
            found[queue] = tasks
            continue
        for counts in tasks.values():
            found.setdefault(OTHER, {}).setdefault(OTHER, Counts()).add(counts)
    return found


def _read(client: Client, call: Call[T], nothing: T) -> T:
    """Return the result of a call, or None if the data is damaged, so that other metrics are still shown."""
    try:
        return client.run(call)
    except RedisFailure:
        raise
    except RsmqError:
        return nothing


# -- Metrics ----------------------------------------------------------------------------------------------------------


def _queue_metrics(scrapes: Sequence[Scrape]) -> Iterator[Metric]:
    labels = ["connection", "queue"]
    messages = GaugeMetricFamily(
        "rsmq_queue_messages",
        "Messages: ready to be received, delayed, or in flight (received and hidden); in reliable queues also dead.",
        labels=[*labels, "state"],
    )
    oldest = GaugeMetricFamily(
        "rsmq_queue_oldest_ready_seconds",
        "Age of the oldest ready message; 0 without one.",
        None,
        labels,
    )
    is_paused = GaugeMetricFamily("rsmq_queue_paused", "1 while the queue is paused for workers.", labels=labels)
    sent = CounterMetricFamily("rsmq_queue_sent", "Messages sent by any client.", labels=labels)
    received = CounterMetricFamily("rsmq_queue_received", "Deliveries to any client.", labels=labels)
    dead_lettered = CounterMetricFamily(
        "rsmq_topic_dead_lettered", "Messages of a topic that became dead letters of a group.", labels=labels
    )
    for scrape in scrapes:
        others = {each.name for each in scrape.others}
        unknown_age = {each.name for each in scrape.others if each.kind == "reliable"}
        for name, queue in scrape.queues.items():
            own = [scrape.alias, name]
            for state in ("ready", "delayed", "in_flight"):
                messages.add_metric([*own, state], getattr(queue, state))
            if name not in unknown_age:
                oldest.add_metric(own, queue.oldest_ready_s or 0)
            if name not in others and name != OTHER:
                is_paused.add_metric(own, name in scrape.paused)
            sent.add_metric(own, queue.total_sent)
            received.add_metric(own, queue.total_received)
        dead = Counter[tuple[str, str]]()
        for each in scrape.others:
            if not isinstance(each.depth, RsmqError):
                dead[each.kind, each.name if each.name in scrape.queues else OTHER] += each.depth.dead
        for (kind, name), number in dead.items():
            if kind == "reliable":
                messages.add_metric([scrape.alias, name, "dead"], number)
            else:
                dead_lettered.add_metric([scrape.alias, name], number)
    yield from (messages, oldest, is_paused, sent, received, dead_lettered)


def _attempt_metrics(scrapes: Sequence[Scrape]) -> Iterator[Metric]:
    labels = ["connection", "queue", "task"]
    sent = CounterMetricFamily("rsmq_task_sent", "First deliveries of messages to workers.", labels=labels)
    started = CounterMetricFamily("rsmq_attempts_started", "Attempts that workers started.", labels=labels)
    interrupted = CounterMetricFamily(
        "rsmq_interruptions", "Functions that were interrupted; each time the process is replaced.", labels=labels
    )
    ended = CounterMetricFamily("rsmq_attempts", "Attempts that ended, by outcome.", labels=[*labels, "outcome"])
    wait = HistogramMetricFamily(
        "rsmq_wait_seconds", "Latency: time from ready to received by a worker.", labels=labels
    )
    run = HistogramMetricFamily("rsmq_run_seconds", "Run time of functions.", labels=labels)
    for scrape in scrapes:
        for queue, tasks in scrape.totals.items():
            for task, counts in tasks.items():
                own = [scrape.alias, queue, task]
                sent.add_metric(own, counts.sent)
                started.add_metric(own, counts.started)
                interrupted.add_metric(own, counts.interrupted)
                for outcome in OUTCOMES:
                    ended.add_metric([*own, outcome], getattr(counts, outcome))
                wait.add_metric(own, buckets(counts.wait), counts.wait.sum_us / 1e6)
                run.add_metric(own, buckets(counts.run), counts.run.sum_us / 1e6)
    yield from (sent, started, interrupted, ended, wait, run)


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return a histogram in the format of Prometheus: the cumulative count for each bound in seconds."""
    counts = [(f"{bound_s:g}", float(histogram.count_up_to(bound_s * 1e6))) for bound_s in BOUNDS_S]
    return [*counts, ("+Inf", float(histogram.count))]


def _worker_metrics(scrapes: Sequence[Scrape]) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "rsmq_worker_last_beat_age_seconds",
        "Seconds since the last heartbeat of a worker process, which it sends every few seconds.",
        labels=["connection", "worker"],
    )
    number = GaugeMetricFamily("rsmq_workers", "Known worker processes.", labels=["connection"])
    for scrape in scrapes:
        number.add_metric([scrape.alias], len(scrape.workers))
        for worker in scrape.workers:
            age.add_metric([scrape.alias, worker.worker_id], max(0.0, worker.now_ms - worker.beat_ms) / 1000)
    yield from (number, age)
    consumers = GaugeMetricFamily(
        "rsmq_queue_workers",
        "Live worker processes that consume a queue of the settings.",
        labels=["connection", "queue"],
    )
    for scrape in scrapes:
        for name, processes in scrape.consumers.items():
            consumers.add_metric([scrape.alias, name], processes)
    yield consumers
    slots = GaugeMetricFamily(
        "rsmq_worker_slots",
        "Functions and coroutines that run in live worker processes, and how many can run at a time.",
        labels=["connection", "queues", "kind", "state"],
    )
    for scrape in scrapes:
        for (queues, kind), (busy, total) in scrape.slots.items():
            slots.add_metric([scrape.alias, queues, kind, "busy"], busy)
            slots.add_metric([scrape.alias, queues, kind, "total"], total)
    yield slots


def _schedule_metrics(scrapes: Sequence[Scrape]) -> Iterator[Metric]:
    labels = ["connection", "schedule"]
    overdue = GaugeMetricFamily(
        "rsmq_schedule_overdue_seconds", "Time since a tick was due that has not fired; 0 while none is.", labels=labels
    )
    fired = CounterMetricFamily("rsmq_schedule_fired", "Ticks that fired.", labels=labels)
    skipped = CounterMetricFamily("rsmq_schedule_skipped", "Missed ticks that were skipped.", labels=labels)
    for scrape in scrapes:
        most, sums = Counter[str](), Counter[tuple[str, str]]()
        for number, entry in enumerate(sorted(scrape.schedules.entries.values(), key=lambda each: each.name)):
            name = entry.name if number < MOST_QUEUES else OTHER
            late_ms = 0 if entry.next_ms is None else scrape.schedules.now_ms - entry.next_ms
            most[name] = max(most[name], late_ms)
            sums[name, "fired"] += entry.fired
            sums[name, "skipped"] += entry.skipped
        for name, late_ms in most.items():
            overdue.add_metric([scrape.alias, name], max(0, late_ms) / 1000)
            fired.add_metric([scrape.alias, name], sums[name, "fired"])
            skipped.add_metric([scrape.alias, name], sums[name, "skipped"])
    yield from (overdue, fired, skipped)


def _event_metrics(scrapes: Sequence[Scrape]) -> Iterator[Metric]:
    length = GaugeMetricFamily("rsmq_events", "Entries of the event log.", labels=["connection"])
    dropped = CounterMetricFamily("rsmq_events_dropped", "Events that Redis rejected.", labels=["connection"])
    for scrape in scrapes:
        length.add_metric([scrape.alias], scrape.log.events)
        dropped.add_metric([scrape.alias], scrape.log.dropped)
    yield from (length, dropped)
