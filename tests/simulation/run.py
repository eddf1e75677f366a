"""One run: senders, workers and faults from one seed, then the end of all work, then the judgement."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rsmq_django import schedules
from rsmq_django.core.doctor import ExpectedQueue, Severity, examine
from rsmq_django.core.errors import WorkflowNotFound
from rsmq_django.core.tasks.schedules import tick_id
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.tasks import get_workflow
from rsmq_django.tasks.compat import TaskResultDoesNotExist, task_backends
from tests.faults.checker import Report, check
from tests.faults.history import Entry
from tests.simulation import processes, sending, tasks, ticks, workflows, world
from tests.simulation.calls import read_call
from tests.simulation.faults import WORK_S, Breaker, Step, rules_of
from tests.simulation.network import Network
from tests.simulation.processes import end_process, network, new_process
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.server import QUEUE_KEYS, Server

#: What is not done this long after the last fault stays undone.
DRAIN_S = 900.0
STOP_S = 200.0


@dataclass
class Outcome:
    """What a run has shown."""

    seed: int
    steps: list[Step]
    report: Report
    worker_s: float
    counts: Counter[str]
    digest: str
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of_failure(cls, seed: int, steps: Sequence[Step], why: str) -> Outcome:
        """Return the outcome of a run that did not come to its end."""
        return cls(seed, list(steps), Report(), 0.0, Counter(), "", [f"the run did not end: {why}"])


def run(seed: int, server: Server, steps: Sequence[Step]) -> Outcome:
    """Simulate a seed with these of its faults. Once per process: the package keeps things for the next calls."""
    scheduler = world.begin(str(seed))
    try:
        return _run(seed, server, list(steps), scheduler)
    finally:
        world.end()


def _run(seed: int, server: Server, steps: list[Step], scheduler: Scheduler) -> Outcome:
    dice = random.Random(f"{seed}:calls")
    simulated = Network(scheduler, server, random.Random(f"{seed}:network"))
    processes.begin(simulated)
    server.begin()
    log = _Errors()
    logger = logging.getLogger("rsmq_django")
    logger.addHandler(log)
    problems = list[str]()
    for key in QUEUE_KEYS:
        ensure_queue(key.decode().partition(":")[2])
    breaker = Breaker([processes.start_supervisor(f"w{number}") for number in (1, 2)])
    sender = new_process("sender")
    try:
        sending.start(sender, dice)
        began, began_ms = scheduler.now, simulated.server_us // 1000
        for step in steps:
            scheduler.sleep(max(0.0, began + step.at_s - scheduler.now))
            breaker.take(step)
        scheduler.sleep(max(0.0, began + WORK_S - scheduler.now))
        breaker.mend()
        schedules.pause(ticks.NAME)
        paused_ms = simulated.server_us // 1000
        dead = _drained(sender, problems)
        results, ends, states = _results(), _ends_of_cancelled(), _states_of_workflows()
        _stop(breaker, problems)
        problems += _left_over()
    finally:
        for process in _alive():
            end_process(process)
        while any(process.threads for process in processes.Current.all):
            scheduler.block(scheduler.now + 1)
        logger.removeHandler(log)
    rules, history = rules_of(steps), world.Current.history
    problems += simulated.calls.judge(history, ends, dead, knows_causes=rules.knows_causes)
    slots = {tick_id("rsmq", ticks.NAME, at_ms): at_ms for at_ms in _multiples(began_ms, paused_ms)}
    jumps = any(step.kind == "server clock" for step in steps)
    problems += ticks.judge(
        simulated.calls, slots, began_ms, paused_ms, clock_jumps=jumps, knows_causes=rules.knows_causes
    )
    problems += workflows.judge(simulated.calls, history, states, dead)
    # At the moments that the books know: a sender hears of it later, or not at all.
    cancelled = [Entry(each.cancelled_s, "cancelled", each.name) for each in simulated.calls.cancelled()]
    replaced = [Entry(each.gone_s, "cancelled", each.name) for each in simulated.calls.replaced()]
    stopped = [Entry(scheduler.now, "cancelled", name) for name, state in states.items() if state == "cancelled"]
    report = check([*history, *cancelled, *replaced, *stopped], rules, dead=dead, results=results, slots=slots)
    problems += [*report.problems, *simulated.books.problems, *log.problems, *scheduler.failures]
    if rules.knows_causes:
        problems += _attempts(history, dead - simulated.calls.names("expiring"))
    return Outcome(seed, steps, report, processes.Current.lived_s, simulated.counts, simulated.digest, problems)


# -- The end of the work ----------------------------------------------------------------------------------------------


def _drained(sender: Process, problems: list[str]) -> set[str]:
    """Wait until the queue is empty; return the names of dead letters."""
    scheduler = world.scheduler()
    until = scheduler.now + DRAIN_S
    server = network().server
    while sender.threads or server.count():
        if scheduler.now > until:
            problems.append(f"{server.count()} messages are left {DRAIN_S:.0f} s after the last fault")
            break
        scheduler.sleep(1)
    bodies = [body for key in server.run("KEYS", "*dead*:Q") for body in server.run("HVALS", key)]
    return {read_call(body).name for body in bodies if body.startswith(b"{")}


def _results() -> dict[str, object]:
    """Return what calls have returned whose result is kept, by name."""
    sent = [entry for entry in world.Current.history if entry.what == "sent" and entry.kind == "kept"]
    return {entry.name: _end_of(entry.more["id"]) for entry in sent}


def _ends_of_cancelled() -> dict[str, object]:
    """Return how calls that were cancelled ended according to their results, by id."""
    return {each.task_id: _end_of(each.task_id) for each in network().calls.cancelled()}


def _states_of_workflows() -> dict[str, str]:
    """Return the states of workflows whose ids a sender knows, by name."""
    found = {}
    for entry in world.Current.history:
        if entry.what in ("sent", "unknown") and entry.kind in workflows.SIZES and entry.more.get("id"):
            with suppress(WorkflowNotFound):
                found[entry.name] = str(get_workflow(entry.more["id"]).status().state)
    return found


def _end_of(task_id: str) -> object:
    """Return the value of a result, or the error or status."""
    try:
        result = task_backends["default"].get_result(task_id)
    except TaskResultDoesNotExist as error:
        return type(error).__name__
    if result.status == "SUCCESSFUL":
        return result.return_value
    return result.errors[-1].exception_class_path.rpartition(".")[2] if result.errors else str(result.status)


def _stop(breaker: Breaker, problems: list[str]) -> None:
    """Stop all workers, as an operator does."""
    scheduler = world.scheduler()
    for supervisor in breaker.supervisors:
        supervisor.terminate()
    until = scheduler.now + STOP_S
    while remaining := [each for each in _alive() if each.role != "sender"]:
        if scheduler.now > until:
            problems.append(f"{len(remaining)} processes do not end after SIGTERM")
            return
        scheduler.sleep(1)


def _alive() -> list[Process]:
    return [process for process in processes.Current.all if not process.is_dead]


# -- Judgement ----------------------------------------------------------------------------------------------------


def _multiples(began_ms: int, ended_ms: int) -> range:
    """Return the times at which a schedule is due, also where the server's clock jumped by a few minutes."""
    every_ms, most_ms = 1000 * ticks.EVERY_S, 1000 * 3600
    return range((began_ms - most_ms) // every_ms * every_ms, ended_ms + most_ms, every_ms)


def _attempts(history: Sequence[Entry], dead: set[str]) -> list[str]:
    """Return calls whose attempts were counted wrong: without repeats, each run follows a failure."""
    failures, problems = Counter[str](), list[str]()
    for entry in history:
        if entry.what == "start" and entry.more["attempt"] != failures[entry.name] + 1:
            problems.append(f"{entry.name}: attempt {entry.more['attempt']} after {failures[entry.name]} failures")
        failures[entry.name] += entry.what == "failed"
    wrong = {name for name in dead if failures[name] != tasks.FEW_ATTEMPTS}
    return problems + [f"{name} is a dead letter after {failures[name]} failures" for name in sorted(wrong)]


def _left_over() -> list[str]:
    """Return what should not be on the server when all is done."""
    server, problems = network().server, list[str]()
    fields = [field.decode() for key in QUEUE_KEYS for field in server.run("HKEYS", key + b":Q")]
    kept = [field for field in fields if len(field.partition(":")[0]) == 32]
    if kept:
        problems.append(f"fields of messages are left: {', '.join(kept[:3])}")
    expected = {"default": ExpectedQueue(is_worked_on=False)}
    findings = examine(get_client(), settings=expected)
    problems += [f"doctor: {each}" for each in findings if each.severity >= Severity.ERROR]
    return problems


class _Errors(logging.Handler):
    """Collects errors that the package logs with a traceback: its own defects."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.problems: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], (Killed, tasks.Planned)):
            self.problems.append(f"logged: {record.getMessage()}: {record.exc_info[1]!r}")
