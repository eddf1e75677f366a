"""One run: senders, workers and faults from one seed, then the end of all work, then the judgement."""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from rsmq_django.core.doctor import ExpectedQueue, Severity, examine
from rsmq_django.core.errors import OutcomeUnknown, RedisFailure
from rsmq_django.queues import get_client
from rsmq_django.tasks import call, chain
from tests.faults.checker import Report, check
from tests.faults.history import Entry
from tests.faults.run import NAME
from tests.simulation import processes, tasks, world
from tests.simulation.faults import WORK_S, Breaker, Step, rules_of
from tests.simulation.network import Network
from tests.simulation.processes import end_process, network, new_process
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.server import Server

QUEUE_KEY = b"rsmq:default"
#: What is not done this long after the last fault stays undone.
DRAIN_S = 900.0
STOP_S = 200.0
#: How many of a hundred calls are of a kind.
SHARES = {"plain": 30, "delayed": 10, "flaky": 15, "hopeless": 5, "limited": 20, "kept": 10, "chain": 10}


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
    simulated = Network(scheduler, server, random.Random(f"{seed}:network"), QUEUE_KEY)
    processes.begin(simulated)
    server.begin()
    log = _Errors()
    logger = logging.getLogger("rsmq_django")
    logger.addHandler(log)
    problems = list[str]()
    breaker = Breaker([processes.start_supervisor(f"w{number}") for number in (1, 2)])
    sender = new_process("sender")
    try:
        for number in range(2):
            scheduler.start(sender, partial(_send, number, random.Random(dice.random())))
        began = scheduler.now
        for step in steps:
            scheduler.sleep(max(0.0, began + step.at_s - scheduler.now))
            breaker.take(step)
        scheduler.sleep(max(0.0, began + WORK_S - scheduler.now))
        breaker.mend()
        dead = _drained(sender, problems)
        results = _results(dead)
        _stop(breaker, problems)
        problems += _left_over()
    finally:
        for process in _alive():
            end_process(process)
        while any(process.threads for process in processes.Current.all):
            scheduler.block(scheduler.now + 1)
        logger.removeHandler(log)
    rules = rules_of(steps)
    report = check(world.Current.history, rules, dead=dead, results=results)
    problems += [*report.problems, *simulated.books.problems, *log.problems, *scheduler.failures]
    if rules.knows_causes:
        problems += _attempts(world.Current.history, dead)
    return Outcome(seed, steps, report, processes.Current.lived_s, simulated.counts, simulated.digest, problems)


# -- Work ---------------------------------------------------------------------------------------------------------


def _send(number: int, dice: random.Random) -> None:
    """Send calls, alone or several at a time, until the end of the work."""
    until = world.scheduler().now + WORK_S
    for count in itertools.count(1):
        if dice.random() < 0.8:  # more often while the network fails
            world.sleep(dice.expovariate(1 if network().weather else 1 / 10))
        if world.scheduler().now >= until:
            return
        (kind,) = dice.choices(list(SHARES), list(SHARES.values()))
        name = f"call-{number}-{count}"
        try:
            sent = _enqueue(kind, name, dice)
        except OutcomeUnknown:
            world.note("unknown", name, kind)
        except RedisFailure:
            world.note("refused", name, kind)
        else:
            world.note("sent", name, kind, id=sent)


def _enqueue(kind: str, name: str, dice: random.Random) -> str:
    if kind == "plain":
        return tasks.plain.enqueue(name, dice.choice([0.01, 0.1, 1, 5, 20, 80])).id
    if kind == "delayed":
        return tasks.plain.using(run_after=timedelta(seconds=dice.uniform(1, 90))).enqueue(name, 0.5).id
    if kind == "chain":
        return chain(call(tasks.first_step, name), call(tasks.last_step)).enqueue().id
    if kind == "limited":
        return tasks.limited.enqueue(name, dice.choice([1, 5, 20])).id
    if kind == "flaky":
        return tasks.flaky.enqueue(name, dice.randint(1, 2)).id
    return (tasks.kept if kind == "kept" else tasks.hopeless).enqueue(name).id


def _named(what: str) -> set[str]:
    return {entry.name for entry in world.Current.history if entry.what == what}


def _drained(sender: Process, problems: list[str]) -> set[str]:
    """Wait until the queue is empty; return the names of dead letters."""
    scheduler = world.scheduler()
    until = scheduler.now + DRAIN_S
    server = network().server
    while sender.threads or server.run("ZCARD", QUEUE_KEY):
        if scheduler.now > until:
            problems.append(f"{server.run('ZCARD', QUEUE_KEY)} messages are left {DRAIN_S:.0f} s after the last fault")
            break
        scheduler.sleep(1)
    texts = " ".join(repr(server.run("HVALS", key)) for key in server.run("KEYS", "*dead*:Q"))
    return set(NAME.findall(texts))


def _results(dead: set[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for entry in world.Current.history:
        if entry.what == "sent" and entry.kind == "kept" and entry.name not in dead:
            result = tasks.kept.get_result(entry.more["id"])
            found[entry.name] = result.return_value if result.status == "SUCCESSFUL" else str(result.status)
    return found


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
    fields = [field.decode() for field in server.run("HKEYS", QUEUE_KEY + b":Q")]
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
