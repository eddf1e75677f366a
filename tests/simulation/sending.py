"""The simulated senders: what they send, cancel, and are told."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from functools import partial
from typing import Any

from rsmq_django.core.errors import OutcomeUnknown, PartlyDone, RedisFailure, WorkflowInterrupted
from rsmq_django.tasks import Task, Workflow, call, cancel, cancel_tagged, chain, group, map_tasks
from rsmq_django.tasks.compat import TaskResultDoesNotExist
from rsmq_django.tasks.workflow_plan import Invocation
from tests.faults.checker import MEMBERS
from tests.simulation import tasks, world
from tests.simulation.calls import UNIQUE
from tests.simulation.faults import WORK_S
from tests.simulation.processes import network
from tests.simulation.scheduler import Process
from tests.simulation.workflows import SIZES

#: How many of a hundred calls are of a kind.
SHARES = {"plain": 19, "delayed": 7, "flaky": 8, "expiring": 8, "hopeless": 4, "limited": 12, "kept": 6, "chain": 6}
SHARES |= {"group": 6, "map": 4, "single": 6, "waiting": 3, "windowed": 3, "latest": 4, "burst": 4}
#: Kinds of calls that may be cancelled.
CANCELLED = UNIQUE | {"plain", "delayed", "flaky", "limited", "kept", "expiring"}
#: How often a sender tries to cancel a call while the outcome is unknown.
CANCEL_TRIES = 5
KEYS, TAGS = ("a", "b"), ("north", "south")


def start(sender: Process, dice: random.Random) -> None:
    """Start the two threads of the sender."""
    for number in range(2):
        world.scheduler().start(sender, partial(_send, sender, number, random.Random(dice.random())))


def _send(sender: Process, number: int, dice: random.Random) -> None:
    """Send calls, alone or several at a time, until the end of the work. Unique calls come in bursts."""
    until, kind = world.scheduler().now + WORK_S, ""
    for count in itertools.count(1):
        is_burst = kind in UNIQUE and dice.random() < 0.7
        if is_burst:
            world.sleep(dice.expovariate(2))
        elif dice.random() < 0.8:  # more often while the network fails
            world.sleep(dice.expovariate(1 if network().weather else 1 / 10))
        if world.scheduler().now >= until:
            return
        if dice.random() < 0.03:
            _cancel_tagged(dice.choice(TAGS), dice)
        if not is_burst:
            (kind,) = dice.choices(list(SHARES), list(SHARES.values()))
        began_s, began_ms = world.scheduler().now, network().server_us / 1000
        for name, told in _told(kind, f"call-{number}-{count}", dice):
            sent = _existing(told) if kind in UNIQUE else told
            name = name or sent
            world.note("sent", name, kind, id=sent, began_s=began_s, between_ms=(began_ms, network().server_us / 1000))
            if kind in SIZES:
                _cancel_some(sender, Workflow(sent), name, kind, dice)
            elif kind in CANCELLED and dice.random() < 0.15:
                network().calls.to_cancel.add(sent)
                begin = partial(_cancel, told, sent, name, kind, random.Random(dice.random()))
                world.scheduler().start(sender, begin)


def _told(kind: str, name: str, dice: random.Random) -> list[tuple[str, str]]:
    """Send; return the name and the id of each call that the sender knows to be stored, unique ones without a name."""
    try:
        if kind in UNIQUE:
            return [("", sent) for sent in _enqueue_unique(kind, dice)]
        return [(name, _enqueue(kind, name, dice))]
    except WorkflowInterrupted as error:
        world.note("unknown", name, kind, id=error.workflow_id)
    except PartlyDone as error:
        world.note("unknown", name, kind)
        return [("", str(sent)) for sent in error.done.values()]
    except OutcomeUnknown:
        world.note("unknown", name, kind)
    except RedisFailure:
        world.note("refused", name, kind)
    return []


def _enqueue(kind: str, name: str, dice: random.Random) -> str:
    if kind == "plain":
        tags = dice.sample(TAGS, dice.choice([0, 1]))
        return _using(tasks.plain, dice, tags=tags).enqueue(name, dice.choice([0.01, 0.1, 1, 5, 20, 80])).id
    if kind == "delayed":
        later = timedelta(seconds=dice.uniform(1, 90))
        return _using(tasks.plain, dice, run_after=later, tags=[dice.choice(TAGS)]).enqueue(name, 0.5).id
    if kind == "expiring":
        later = timedelta(seconds=dice.choice([0, dice.uniform(1, 30), dice.uniform(1, 30)]))
        return _using(tasks.expiring, dice, run_after=later).enqueue(name, dice.choice([0, 0, 1])).id
    if kind in SIZES:
        return _enqueue_workflow(kind, name, dice).id
    if kind == "limited":
        return tasks.limited.enqueue(name, dice.choice([1, 5, 20])).id
    if kind == "flaky":
        return _using(tasks.flaky, dice).enqueue(name, dice.randint(1, 2)).id
    return (tasks.kept if kind == "kept" else tasks.hopeless).enqueue(name).id


def _using(task: Task[..., Any], dice: random.Random, **options: Any) -> Task[..., Any]:
    """Return the task with options, and with one of three priorities."""
    return task.using(priority=dice.choice([0, 0, 0, 10, -10]), **options)


def _enqueue_unique(kind: str, dice: random.Random) -> list[str]:
    """Send one call, or some at a time."""
    task = _using(getattr(tasks, kind), dice)
    calls = [(dice.choice(KEYS), dice.choice([0.1, 2, 15])) for _ in range(dice.choice([1, 1, 1, 2, 4]))]
    return [task.enqueue(*calls[0]).id] if len(calls) == 1 else task.enqueue_many(calls)


def _enqueue_workflow(kind: str, name: str, dice: random.Random) -> Workflow:
    is_always, members = kind != "chain" and dice.random() < 0.3, [f"{name}.{number}" for number in range(SIZES[kind])]
    world.note("workflow", name, kind, always=is_always)
    then, complain = call(tasks.together, name=name), call(tasks.complain, name=f"{name}.failed")
    if kind == "chain":
        return chain(_member(members[0], dice), _next(tasks.last_step, members[0]), on_failure=complain).enqueue()
    if kind == "map":
        items = [each + "!" * (dice.random() < 0.1) for each in members]
        keeps, ends = dice.random() < 0.5, {"then": then, "on_failure": complain, "then_always": is_always}
        return map_tasks(tasks.mapped, items, window=5 * MEMBERS, keep_results=keeps, **ends)
    steps = [
        chain(_member(each, dice), _next(tasks.follow, each)) if dice.random() < 0.4 else _member(each, dice)
        for each in members
    ]
    return group(steps, then=then, on_failure=complain, then_always=is_always).enqueue()


def _member(name: str, dice: random.Random) -> Invocation:
    if dice.random() < 0.1:
        return call(tasks.member.using(max_attempts=tasks.FEW_ATTEMPTS), name, True, 0.1)
    return call(tasks.member, name, False, dice.choice([0.1, 0.1, 2, 20]))


def _next(task: Task[..., Any], member: str) -> Invocation:
    return call(task, name=f"{member}+")


def _existing(task_id: str) -> str:
    """Return the id of the call for which a unique one was dropped or replaced, or its own."""
    while (of := network().server.run("HGET", f"rsmq::result:{task_id}", "of")) is not None:
        task_id = of.decode()
    return task_id


# -- Cancelling -------------------------------------------------------------------------------------------------------


def _cancel(told: str, task_id: str, name: str, kind: str, dice: random.Random) -> None:
    """Cancel a call some time after it was sent; again, when the reply is lost."""
    world.sleep(dice.choice([0, dice.expovariate(10), dice.expovariate(1), dice.expovariate(1 / 20)]))
    for _ in range(CANCEL_TRIES):
        try:
            answer = cancel(told)
        except RedisFailure:
            world.sleep(dice.expovariate(2))
        except TaskResultDoesNotExist as error:
            world.note("cancel", name, kind, id=task_id, answer=type(error).__name__)
            return
        else:
            world.note("cancel", name, kind, id=task_id, answer=answer)
            return


def _cancel_tagged(tag: str, dice: random.Random) -> None:
    """Cancel all calls with a tag; again, when a reply is lost."""
    network().calls.to_cancel.add(tag)
    began_s = world.scheduler().now
    for _ in range(CANCEL_TRIES):
        try:
            count = cancel_tagged(tag)
        except RedisFailure:
            world.sleep(dice.expovariate(2))
        else:
            world.note("cancel tagged", tag, began_s=began_s, count=count)
            return
    world.note("cancel tagged", tag, began_s=began_s, count=None)


def _cancel_some(sender: Process, workflow: Workflow, name: str, kind: str, dice: random.Random) -> None:
    """Cancel a workflow now and then, or one of its members."""
    chosen, own = dice.random(), random.Random(dice.random())
    if chosen < 0.15:
        network().calls.to_cancel.add(name)
        world.scheduler().start(sender, partial(_cancel_workflow, workflow, name, kind, own))
    elif chosen < 0.3:
        member = dice.choice([each for each in network().calls.all() if each.root == name and each.name != name])
        network().calls.to_cancel.add(member.task_id)
        begin = partial(_cancel, member.task_id, member.task_id, member.name, member.kind, own)
        world.scheduler().start(sender, begin)


def _cancel_workflow(workflow: Workflow, name: str, kind: str, dice: random.Random) -> None:
    world.sleep(dice.choice([0, dice.expovariate(10), dice.expovariate(1), dice.expovariate(1 / 20)]))
    for _ in range(CANCEL_TRIES):
        try:
            world.note("cancel all", name, kind, answer=workflow.cancel())
        except RedisFailure:
            world.sleep(dice.expovariate(2))
        else:
            return
    world.note("cancel all", name, kind, answer=None)
