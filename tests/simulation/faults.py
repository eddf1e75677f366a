"""The faults of a simulation: what happens, when, for how long. A seed picks them; any of them can be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.checker import Rules
from tests.simulation import processes, world
from tests.simulation.network import Weather
from tests.simulation.scheduler import Process

#: Calls are sent, and faults happen, for this time.
WORK_S = 780.0
#: From one fault to the next: the mild ones are over by then, and leases are renewed.
APART_S = 40.0
LONGEST_S = 12.0
#: Faults of the network. Leases outlast them.
NETWORK = (
    "lose requests",
    "lose replies",
    "cut requests",
    "cut replies",
    "split requests",
    "refuse",
    "hole",
    "slow",
)
#: Those that leave all leases and processes as they are ...
MILD = (*NETWORK, "reset", "restart server", "forget scripts", "pause", "stop worker", "client clock")
#: ... and those after which calls may run again.
HARD = ("kill process", "kill worker", "kill supervisor", "long pause", "long hole", "server clock")
KINDS = (*MILD, *HARD)


@dataclass(frozen=True)
class Step:
    """One fault of a run."""

    number: int
    at_s: float
    kind: str
    seed: str

    def __str__(self) -> str:
        return f"{self.number} {self.kind} at {self.at_s:.0f} s"


def plan(seed: str, only: Sequence[str] | None = None) -> list[Step]:
    """Return the faults of a seed: of some kinds, or of these. Every second seed has mild ones only."""
    dice = random.Random(f"{seed}:faults")
    known = [*MILD, *(HARD if dice.random() < 0.5 else ())]
    kinds = dice.sample(known, dice.randint(1, 6)) if only is None else only
    places = range(int(WORK_S / APART_S))
    chosen = sorted(dice.sample(places, dice.randint(3, len(places))))
    times = [APART_S * place + dice.uniform(5, 15) for place in chosen]
    return [Step(number, at_s, dice.choice(kinds), f"{seed}:{number}") for number, at_s in enumerate(times)]


def rules_of(steps: Sequence[Step]) -> Rules:
    """Return what may happen with these faults."""
    is_hard = any(step.kind in HARD for step in steps)
    # The books know the moment of a cancellation, and judge what began after it.
    return Rules(knows_causes=not is_hard, may_die=None, may_forget_cancellations=True)


class Breaker:
    """Carries out the steps; the world is mended when it stops."""

    def __init__(self, supervisors: list[processes.SimulatedSupervisor]) -> None:
        self.supervisors = supervisors
        self._kinds: dict[str, Callable[[random.Random], None]] = {
            "reset": self._reset,
            "restart server": self._restart_server,
            "forget scripts": lambda dice: processes.network().server.forget_scripts(),
            "pause": lambda dice: self._pause(dice, dice.uniform(0.1, 5)),
            "long pause": lambda dice: self._pause(dice, dice.uniform(20, 100)),
            "stop worker": self._stop_worker,
            "client clock": self._client_clock,
            "kill process": self._kill_process,
            "kill worker": lambda dice: self._kill_worker(dice, with_children=True),
            "kill supervisor": lambda dice: self._kill_worker(dice, with_children=False),
            "long hole": lambda dice: self._blow(dice, "hole", dice.uniform(20, 90)),
            "server clock": self._server_clock,
        }

    def take(self, step: Step) -> None:
        """Let a fault happen. The thread of the run waits as long as it has to be there."""
        dice = random.Random(step.seed)
        world.note("fault", str(step))
        if step.kind in NETWORK:
            self._blow(dice, step.kind, dice.uniform(0.5, LONGEST_S))
        else:
            self._kinds[step.kind](dice)

    def mend(self) -> None:
        """End all faults that are going on."""
        network = processes.network()
        network.weather.clear()
        network.is_down = False
        for _, child in processes.Current.children:
            child.process.still_until = 0.0
        for supervisor in self.supervisors:
            supervisor.process.still_until = 0.0

    # -- Network ------------------------------------------------------------------------------------------------------

    def _blow(self, dice: random.Random, kind: str, seconds: float) -> None:
        scheduler, network = world.scheduler(), processes.network()
        until = scheduler.now + seconds
        struck = None if dice.random() < 0.4 else set(dice.sample(self._living(), 2))
        weather = Weather(kind, struck, random.Random(dice.random()), dice.choice([0.2, 0.5, 1.0]), until)
        if kind == "hole":
            weather.share = 1.0
        network.weather.append(weather)
        scheduler.at(until, lambda: network.weather.remove(weather) if weather in network.weather else None)

    def _reset(self, dice: random.Random) -> None:
        processes.network().reset(None if dice.random() < 0.5 else dice.choice(self._living()))

    def _restart_server(self, dice: random.Random) -> None:
        scheduler, network = world.scheduler(), processes.network()
        network.is_down = True
        network.reset()

        def start() -> None:
            network.is_down = False
            network.server.forget_scripts()

        scheduler.at(scheduler.now + dice.uniform(0.5, 6), start)

    # -- Clocks -------------------------------------------------------------------------------------------------------

    def _client_clock(self, dice: random.Random) -> None:
        dice.choice(self._living()).clock_offset_s += dice.choice([-3600, -60, 60, 3600])

    def _server_clock(self, dice: random.Random) -> None:
        processes.network().server_offset_s += dice.uniform(-60, 120)

    # -- Processes ----------------------------------------------------------------------------------------------------

    def _pause(self, dice: random.Random, seconds: float) -> None:
        dice.choice(self._living()).still_until = world.scheduler().now + seconds

    def _kill_process(self, dice: random.Random) -> None:
        parent, child = dice.choice(self._children())
        child.die()
        parent.wakeup.wake()

    def _stop_worker(self, dice: random.Random) -> None:
        """Replace a worker, as a deployment does."""
        supervisor = dice.choice(self.supervisors)
        self.supervisors.remove(supervisor)
        self._start()
        supervisor.terminate()

    def _kill_worker(self, dice: random.Random, *, with_children: bool) -> None:
        supervisor = dice.choice(self.supervisors)
        self.supervisors.remove(supervisor)
        processes.kill_supervisor(supervisor, with_children=with_children)
        world.sleep(dice.uniform(0.1, 20))
        self._start()

    def _start(self) -> None:
        self.supervisors.append(processes.start_supervisor(f"w{len(processes.Current.all) + 1}"))

    def _children(self) -> list[tuple[processes.SimulatedSupervisor, processes.SimulatedChild]]:
        alive = [(parent, child) for parent, child in processes.Current.children if child.code is None]
        while not alive:
            world.sleep(1)
            alive = self._children()
        return alive

    def _living(self) -> list[Process]:
        """Return workers, their supervisors and the sender."""
        found = [child.process for _, child in self._children()]
        senders = [process for process in processes.Current.all if process.role == "sender"]
        return [*found, *(supervisor.process for supervisor in self.supervisors), *senders]
