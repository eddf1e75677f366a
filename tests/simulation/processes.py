"""The package's supervisors and workers as simulated processes, and what stands for the system below them."""

from __future__ import annotations

import copy
import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from rsmq_django import queues
from rsmq_django.conf.settings import get_settings
from rsmq_django.core.transport import call as calls
from rsmq_django.core.transport import connection
from rsmq_django.tasks import route
from rsmq_django.worker import worker as worker_module
from rsmq_django.worker.execute import interrupt as interrupt_module
from rsmq_django.worker.execute import pool as pool_module
from rsmq_django.worker.execute.pool import Pool
from rsmq_django.worker.fetch.polling import IdleTurn
from rsmq_django.worker.fetch.wakeup import Wakeup
from rsmq_django.worker.report import shared_state as shared_state_module
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.stopping import STOP_SIGNALS
from rsmq_django.worker.supervise import control
from rsmq_django.worker.supervise import supervisor as supervisor_module
from rsmq_django.worker.supervise.process import BROKEN, ENDED, INTERRUPTED, UNFINISHED, USED_UP, Child, ProcessSlot
from rsmq_django.worker.supervise.supervisor import Supervisor, SupervisorOptions
from rsmq_django.worker.worker import Worker, WorkerOptions
from tests.simulation import world
from tests.simulation.network import Factory, Link, Network, SimulatedWire
from tests.simulation.scheduler import Process
from tests.simulation.server import in_simulated_time

THREADS = 2
#: Of the memory that a process shares with its supervisor: two threads need no more, and reading it costs time.
SPARE_SLOTS = 30
#: The work of one turn of a main loop takes time.
TURN_S = 0.0001
SIGTERM = STOP_SIGNALS[0]


class SimulatedWakeup(Wakeup):
    """Sleeps in simulated time; there is no pipe."""

    def __init__(self) -> None:
        self._reader, self._is_asleep, self._was_woken = -1, False, False
        self._watched, self._subscriptions = {}, []
        self._thread = world.scheduler().current
        #: Handlers of signals that have come.
        self._signals: deque[Callable[[], object]] = deque()

    def interrupt(self, handler: Callable[[], object]) -> None:
        """Call a function in the main thread, as a handler of a signal."""
        self._signals.append(handler)
        world.scheduler().wake(self._thread)

    def watch(self, descriptor: int, on_ready: Callable[[], None]) -> None:
        """There are no files."""

    def watch_signals(self) -> None:
        """Signals come by interrupt()."""

    def wake(self) -> None:
        if self._is_asleep:
            self._is_asleep, self._was_woken = False, True
            world.scheduler().wake(self._thread)

    def sleep(self, until: Callable[[], float | None], *, at_most_s: float) -> None:
        self._thread = world.scheduler().current
        world.sleep(TURN_S)
        self._handle_signals()
        super().sleep(until, at_most_s=at_most_s)

    def step_aside(self) -> None:
        world.sleep(TURN_S)

    def _wait(self, seconds: float, listening: Iterable[int | None]) -> list[int]:
        scheduler = world.scheduler()
        deadline, descriptors = scheduler.now + seconds, [each for each in listening if each is not None]
        sockets = [network().sockets.get(each) for each in descriptors]
        for link in sockets:
            if link is not None:
                link.reader = self._thread
        while not (self._was_woken or self._signals) and scheduler.now < deadline:
            if any(link is None or link.is_ready for link in sockets):
                break
            scheduler.block(deadline)
        self._was_woken = False
        self._handle_signals()
        return [each for each, link in zip(descriptors, sockets, strict=True) if link is None or link.is_ready]

    def _handle_signals(self) -> None:
        while self._signals:
            self._signals.popleft()()

    def close(self) -> None:
        """There is no pipe."""


class SimulatedPool(Pool):
    """Runs functions on simulated threads; there is no event loop."""

    def start(self) -> None:
        for number in range(self._threads):
            self._start_thread(number)

    def cancel_coroutines(self) -> None:
        """There are none."""


class SimulatedChild(Child):
    """A simulated process, as its supervisor sees it."""

    process: Process
    code: int | None
    on_signal: Callable[[], object] | None

    def _send(self, number: int) -> None:
        if self.code is not None:
            return
        if number == SIGTERM:
            if self.on_signal is not None:
                self.on_signal()
        else:
            self.die()

    def die(self) -> None:
        """End as by SIGKILL. What it still writes into the shared memory while it unwinds is not seen."""
        if self.code is None:
            shared = copy.copy(self.shared_state)
            shared._memory = bytearray(self.shared_state._memory[:])  # type: ignore[assignment]
            self.shared_state, self.code = shared, -9
            end_process(self.process)

    def reap(self) -> int | None:
        return self.code


class SimulatedSupervisor(Supervisor):
    """A supervisor whose processes are simulated."""

    def __init__(self, process: Process, options: SupervisorOptions) -> None:
        self.process = process
        super().__init__([get_settings().queue("default")], options)
        for descriptor in (self._lifeline, self._lifeline_writer):
            os.close(descriptor)

    @property
    def wakeup(self) -> SimulatedWakeup:
        assert isinstance(self._wakeup, SimulatedWakeup)
        return self._wakeup

    def terminate(self) -> None:
        """Receive SIGTERM."""
        self.wakeup.interrupt(lambda: self._on_signal(SIGTERM, None))

    def _fork(self, process_slot: ProcessSlot) -> Child:
        options, scheduler = self._options_of_a_child(), world.scheduler()
        process = new_process("worker")
        network().books.supervisors[process] = self.process
        network().workers[options.worker_id] = process
        shared_state = SharedState(2 * options.threads)
        child = SimulatedChild(process.number, options.worker_id, shared_state, process_slot)
        child.process, child.code, child.on_signal = process, None, None
        turn = self._idle_turns.member(process_slot.number)
        scheduler.start(process, lambda: self._be(child, options, turn))
        Current.children.append((self, child))
        return child

    def _be(self, child: SimulatedChild, options: WorkerOptions, turn: IdleTurn) -> None:
        """Do what a forked process does."""
        code, holds_nothing = BROKEN, False
        try:
            worker = Worker(self.queues, options, shared_state=child.shared_state, idle_turns=turn)
            assert isinstance(worker.wakeup, SimulatedWakeup)
            wakeup, stopping = worker.wakeup, worker._stopping
            child.on_signal = lambda: wakeup.interrupt(lambda: stopping._on_supervisor_signal(SIGTERM, None))
            Current.orphan[child.process] = lambda: wakeup.interrupt(worker._on_orphaned)
            has_finished = worker.run()
            holds_nothing = worker.holds_nothing
            code = USED_UP if options.max_tasks is not None and worker.taken >= options.max_tasks else ENDED
            code = code if child.shared_state.interrupted_at is None else INTERRUPTED
            code = code if has_finished else UNFINISHED
        finally:  # not reached alive after an error of the main loop that is not one of the simulation
            if not child.process.is_dead:
                child.shared_state.note_end(holds_nothing=holds_nothing)
                child.code = code
                end_process(child.process, by_itself=code != BROKEN)
                self.wakeup.wake()


class Current:
    """The processes of the simulation that runs."""

    network: Network
    #: All processes, also those that have ended.
    all: list[Process]
    children: list[tuple[SimulatedSupervisor, SimulatedChild]]
    #: Tells a process that its supervisor has ended.
    orphan: dict[Process, Callable[[], object]]
    lived_s: float


def network() -> Network:
    """Return the network of the simulation that runs."""
    return Current.network


def begin(of: Network) -> None:
    """Begin a simulation on this network."""
    Current.network, Current.all, Current.children, Current.orphan, Current.lived_s = of, [], [], {}, 0.0


def new_process(role: str) -> Process:
    """Return a new process."""
    process = Process(len(Current.all) + 1, role, began_at=world.scheduler().now)
    Current.all.append(process)
    return process


def end_process(process: Process, *, by_itself: bool = False) -> None:
    """End a process. The server closes its sockets; what it has sent may still arrive."""
    if not process.is_dead:
        if process.role == "worker":
            if not by_itself:
                world.note("killed", "end", pid=process.number)
            Current.lived_s += world.scheduler().now - process.began_at
        world.scheduler().kill(process)
        network().reset(process)


def start_supervisor(name: str) -> SimulatedSupervisor:
    """Start a supervisor with two processes."""
    process, scheduler = new_process("supervisor"), world.scheduler()
    started: list[SimulatedSupervisor] = []

    def be() -> None:
        worker = WorkerOptions.from_settings(
            get_settings().worker, threads=THREADS, async_tasks=1, worker_id=name, shutdown_timeout_s=150.0, topics=()
        )
        options = SupervisorOptions(processes=2, worker=worker, max_crashes=3, fires_schedules=True)
        supervisor = SimulatedSupervisor(process, options)
        started.append(supervisor)
        supervisor.run()
        end_process(process)

    scheduler.start(process, be)
    while not started:
        scheduler.block(scheduler.now + TURN_S)
    return started[0]


def kill_supervisor(supervisor: SimulatedSupervisor, *, with_children: bool) -> None:
    """Kill a supervisor, and its processes, or leave them as orphans."""
    end_process(supervisor.process)
    for parent, child in Current.children:
        if parent is supervisor and child.code is None:
            if with_children:
                child.die()
            else:
                child.on_signal = None
                Current.orphan.get(child.process, child.die)()


def install() -> None:
    """Put the simulated system below the package."""
    signals = supervisor_module.__dict__["signal"]
    no_signals = {"signal": _nothing, "pthread_sigmask": _nothing}
    replacements: list[tuple[Any, str, object]] = [
        (calls, "_lua", in_simulated_time),
        (connection.Connection, "_new_factory", lambda _: Factory(network())),
        (connection, "Wire", SimpleNamespace(of=_wire_of)),
        (pool_module, "threading", world.THREADING),
        (interrupt_module, "_raise_in_thread", _raise_in_thread),
        (worker_module, "Pool", SimulatedPool),
        (worker_module, "Wakeup", SimulatedWakeup),
        (supervisor_module, "Wakeup", SimulatedWakeup),
        (supervisor_module, "signal", SimpleNamespace(**vars(signals) | no_signals)),
        (control, "resident_bytes", lambda _: 0),
        (shared_state_module, "_SPARE_SLOTS", SPARE_SLOTS),
        (import_module("rsmq_django.tasks.task"), "timezone", world.TIMEZONE),
        (route, "datetime", world.SimulatedDatetime),
    ]
    caches = [name for name, value in vars(queues).items() if type(value) is dict and not name.startswith("__")]
    replacements += [(queues, name, world.OfEachProcess(name)) for name in caches]
    for place, name, replacement in replacements:
        assert hasattr(place, name), f"{place} has no {name} any more"
        setattr(place, name, replacement)


def _wire_of(link: Link, timeout_s: float) -> SimulatedWire:
    return SimulatedWire(network(), link, timeout_s)


def _raise_in_thread(ident: ctypes.c_ulong, kind: ctypes.py_object[type[BaseException]]) -> None:
    world.scheduler().interrupt(ident.value, kind.value)


def _nothing(*_: Any) -> None: ...
