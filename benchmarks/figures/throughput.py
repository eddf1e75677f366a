"""Tasks a second: draining and sending, ours and the peers'; backlogs, many queues, an append-only file."""

from __future__ import annotations

import statistics
import time

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.limits import MAX_BATCH

from .. import reference
from ..candidates import OURS, Candidate, Case, our_case
from ..compiling import NoCompiler
from ..draining import drain
from ..processes import one_core
from ..run import Run
from ..server import Server

EIGHT_THREADS = OURS.case("8 threads")
QUEUE_COUNTS = (1, 10)


def drains(run: Run, candidate: Candidate) -> None:
    """Work off no-op tasks, each case on a fresh server."""
    for case in candidate.cases:
        run.reference()  # before, not while, it is measured
        tasks = run.drain_count(candidate, case)
        with Server() as server:
            used = server.cpu_s()
            candidate.fill(server, case.environment, tasks)
            send_server_us = (server.cpu_s() - used) / tasks * 1e6
            drained = drain(server, candidate, case, tasks=tasks)
        run.add("drain", case.name, {**drained.values, "send_server_us": send_server_us}, who=candidate.name)
        run.note_rate(candidate, case, drained.window.rate)


# -- Sending ----------------------------------------------------------------------------------------------------------


def enqueues(run: Run, candidate: Candidate) -> None:
    """Send one by one and in bulk, from one process, to a server where nobody receives."""
    case = candidate.cases[0]
    if candidate.has_site:
        _in_a_request(run, candidate)
    if candidate.is_ours:
        return _our_enqueues(run)
    _produce(run, candidate, case, "one", run.sizes.sends)
    if candidate.has_bulk:
        _produce(run, candidate, case, "bulk", run.sizes.bulk_sends)


def _our_enqueues(run: Run) -> None:
    for keep_results, suffix in ((False, ""), (True, ", results kept")):
        for name, action, count, how in (
            ("one", "one", run.sizes.sends, "enqueue"),
            ("bulk", "bulk", run.sizes.bulk_sends, "enqueue"),
            ("one transaction", "bulk", run.sizes.sends, "transaction"),
        ):
            case = our_case(name + suffix, keep_results=keep_results, BENCH_HOW=how)
            _produce(run, OURS, case, action, count, name=case.name)
    plain = our_case("one, plain message", BENCH_HOW="core")
    _produce(run, OURS, plain, "one", run.sizes.sends, name=plain.name)


def _produce(run: Run, candidate: Candidate, case: Case, action: str, count: int, *, name: str = "") -> None:
    run.reference()
    with one_core(), Server() as server:
        used = server.cpu_s()
        produced = candidate.produce(server, case.environment, action, str(count))
        server_us = (server.cpu_s() - used) / count * 1e6
    values = {"rate": produced.rate, "sender_us": produced.cpu_s / produced.count * 1e6, "server_us": server_us}
    run.add("enqueue", name or action, values, who=candidate.name)


def _in_a_request(run: Run, candidate: Candidate) -> None:
    """See what one call of the sender adds to a request of a Django site with ATOMIC_REQUESTS."""
    with one_core(), Server() as server:
        added = candidate.produce(server, candidate.cases[0].environment, "request", str(run.sizes.requests))
    run.add("enqueue", "in a web request", {"sender_us": added.cpu_s / added.count * 1e6}, who=candidate.name)


# -- Circumstances ----------------------------------------------------------------------------------------------------


def backlogs(run: Run) -> None:
    """Take from the front of short and long queues; ask a long queue for its attributes.

    Of a long queue little is in the processor's cache, so the C client gets slower as well: it is measured on each.
    """
    for depth in run.sizes.backlogs:
        tasks = min(depth, run.drain_count(OURS, EIGHT_THREADS))
        with Server() as server:
            queue = Queue("bench", Client(Connection(server.url)))
            queue.create()
            c_rate = _fill_plainly(server, queue, depth, cycled=min(depth, run.sizes.reference_messages))
            count_ms = statistics.median(_attributes_ms(queue) for _ in range(11))
            drained = drain(server, OURS, EIGHT_THREADS, tasks=tasks)
        of_c = drained.window.rate / c_rate if c_rate else None
        values = {**drained.values, "count_ms": count_ms, "c_rate": c_rate, "rate_of_c": of_c}
        run.add("backlog", f"{depth:,} waiting", values)


def _fill_plainly(server: Server, queue: Queue, messages: int, *, cycled: int) -> float | None:
    """Send tasks that keep no results: two million take the C client some seconds.

    Returns its rate of receiving and deleting `cycled` more messages from the queue at that length.
    """
    try:
        reference.run(server, "send", count=messages + cycled)
        return reference.run(server, "cycle", count=cycled).rate
    except NoCompiler:
        for _ in range(messages // MAX_BATCH):
            queue.send_many([reference.BODY] * MAX_BATCH)
        return None


def _attributes_ms(queue: Queue) -> float:
    began = time.perf_counter()
    queue.attributes()
    return (time.perf_counter() - began) * 1000


def many_queues(run: Run) -> None:
    """Work off the same number of tasks from one queue and spread over many."""
    most = run.sizes.many_queues
    tasks = max(most, run.drain_count(OURS, EIGHT_THREADS) // most * most)
    for count in (*QUEUE_COUNTS, most):
        environment = {**EIGHT_THREADS.environment, "BENCH_QUEUES": str(count)}
        with Server() as server:
            OURS.fill(server, environment, tasks)
            drained = drain(server, OURS, EIGHT_THREADS, tasks=tasks, environment=environment)
        run.add("queues", f"{count:,} queues", drained.values)


def append_only_file(run: Run) -> None:
    """Work off tasks with and without appendonly everysec, in turns."""
    tasks = run.drain_count(OURS, EIGHT_THREADS)
    rates = []
    for appendonly in (False, True):
        with Server(appendonly=appendonly) as server:
            OURS.fill(server, EIGHT_THREADS.environment, tasks)
            rates.append(drain(server, OURS, EIGHT_THREADS, tasks=tasks).window.rate)
    run.add("appendonly", "everysec", {"rate": rates[1], "rate_without": rates[0], "kept": rates[1] / rates[0]})


def reporting(run: Run) -> None:
    """Work off tasks while nothing is counted, with counters, with the default, and with an event for each."""
    tasks = run.drain_count(OURS, EIGHT_THREADS)
    without: float | None = None
    for name, variables in (
        ("nothing counted", {"BENCH_STATISTICS": "0", "BENCH_EVENTS": "off"}),
        ("counters", {"BENCH_EVENTS": "off"}),
        ("counters and the last events", {}),
        ("counters and all events", {"BENCH_EVENTS": "all"}),
    ):
        environment = {**EIGHT_THREADS.environment, **variables}
        with Server() as server:
            OURS.fill(server, environment, tasks)
            drained = drain(server, OURS, EIGHT_THREADS, tasks=tasks, environment=environment)
        without = without or drained.window.rate
        run.add("books", name, {**drained.values, "kept": drained.window.rate / without})
