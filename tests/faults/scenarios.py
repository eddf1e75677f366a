"""The faults, and the scenarios that consist of them.

A fault is a function of a world and of its own dice: it does what breaks, waits, and mends it. A scenario names its
faults; a seed picks some of them with pauses between. Each step has dice of its own, so any of them can be left out.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path

from tests.chaos.fleet import children_of
from tests.cluster import NEVER_MS, SOON_MS, Node
from tests.faults.checker import Rules
from tests.faults.history import note
from tests.faults.world import (
    TAG,
    ClientClocksWorld,
    ClusterWorld,
    DatabaseWorld,
    OlderWorld,
    SentinelWorld,
    ShardedWorld,
    ShiftedServer,
    SoakWorld,
    TwoReleasesWorld,
    TwoReplicasWorld,
    UnconfirmedWorld,
    World,
)
from tests.support import wait_until
from tests.worker.processes import hold_still

STEPS = 4
#: Longer than the visibility timeout of the queues, which is 3 s.
LEASE_OVER_S = 4.5
#: A connection waits this long for a reply.
TIMEOUT_S = 1.0

Fault = Callable[[World, random.Random], None]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Make a function known under its name."""
    FAULTS[function.__name__] = function
    return function


@contextlib.contextmanager
def cut_off(*pids: int, silent: bool = False, for_sure: bool = False) -> Iterator[None]:
    """Note that these processes, or all, cannot reach the server meanwhile, for too long to keep their leases or not.

    Where the network is silent, they wait for a reply first. `for_sure` is where the server loses leases or outcomes.
    """
    since_s = time.monotonic()
    yield
    lasted_s = math.inf if for_sure else time.monotonic() - since_s + (TIMEOUT_S if silent else 0)
    note("cut off", "all" if not pids else "some", pids=pids, since_s=since_s, lasted_s=lasted_s)


# -- Processes ---------------------------------------------------------------------------------------------------------


@fault
def kill_child(world: World, dice: random.Random) -> None:
    """A process that runs tasks is killed."""
    world.kill(world.child(dice))


@fault
def kill_worker(world: World, dice: random.Random) -> None:
    """A whole worker is killed with its processes, as a machine is that dies; another one starts."""
    worker = dice.choice(world.workers)
    for pid in children_of(worker):
        note("killed", "kill", pid=pid)
    worker.destroy()
    world.workers.remove(worker)
    world.start_worker()


@fault
def stop_worker(world: World, dice: random.Random) -> None:
    """A deployment: one worker is stopped, and its successor starts beside it."""
    worker = dice.choice(world.workers)
    world.start_worker()
    world.stop_worker(worker, dice.choice([signal.SIGTERM, signal.SIGINT]))


@fault
def work_on(world: World, dice: random.Random) -> None:
    """Calls run for a long time; connections are reset now and then, and what processes use is measured."""
    assert isinstance(world, SoakWorld)
    figures: list[dict[str, int]] = []
    world.measured.append(figures)
    ends_at_s = time.monotonic() + world.lasts_s / STEPS
    while time.monotonic() < ends_at_s:
        time.sleep(0.5)
        figures.append(world.measure())
        if dice.random() < 0.2:
            world.worker_proxy.reset_connections()


@fault
def pause_child(world: World, dice: random.Random) -> None:
    """A process stands still for longer than a lease, and goes on."""
    pid = world.child(dice)
    hold_still(pid)
    time.sleep(LEASE_OVER_S)
    os.kill(pid, signal.SIGCONT)


@fault
def pause_child_shortly(world: World, dice: random.Random) -> None:
    """A process stands still for a part of a lease, and goes on: its leases are renewed by its supervisor."""
    pid = world.child(dice)
    hold_still(pid)
    time.sleep(dice.uniform(0.1, 1))
    os.kill(pid, signal.SIGCONT)


@fault
def pause_worker(world: World, dice: random.Random) -> None:
    """A whole worker, which fires schedules and renews leases, stands still for longer than a lease, and goes on."""
    worker = dice.choice(world.workers)
    pids = [worker.process.pid, *children_of(worker)]
    with cut_off(*pids):
        for pid in pids:
            hold_still(pid)
        time.sleep(LEASE_OVER_S)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# -- Network -----------------------------------------------------------------------------------------------------------


@fault
def reset_connections(world: World, dice: random.Random) -> None:
    """All connections are reset, several times."""
    for _ in range(dice.randint(1, 4)):
        world.worker_proxy.reset_connections()
        world.sender_proxy.reset_connections()
        time.sleep(dice.uniform(0, 0.5))


@fault
def short_black_hole(world: World, dice: random.Random) -> None:
    """Nothing arrives any more, in both directions, for less than a lease."""
    proxy = dice.choice([world.worker_proxy, world.sender_proxy])
    with cut_off(silent=True):
        proxy.black_hole()
        time.sleep(dice.uniform(0.1, 1.2))
        proxy.release()


@fault
def long_black_hole(world: World, dice: random.Random) -> None:
    """Nothing arrives at the workers for longer than a lease."""
    with cut_off(silent=True):
        world.worker_proxy.black_hole()
        time.sleep(LEASE_OVER_S)
        world.worker_proxy.release()


@fault
def lose_replies(world: World, dice: random.Random) -> None:
    """The server carries out requests whose replies are lost."""
    proxy = dice.choice([world.worker_proxy, world.sender_proxy])
    proxy.lose_reply_to(b"EVALSHA", times=dice.randint(1, 5))
    time.sleep(0.5)


@fault
def cut_reply(world: World, dice: random.Random) -> None:
    """A reply ends in its middle."""
    dice.choice([world.worker_proxy, world.sender_proxy]).cut_next_reply(after_bytes=dice.randint(1, 200))
    time.sleep(0.3)


@fault
def slow_network(world: World, dice: random.Random) -> None:
    """Each chunk takes up to 150 ms, in each direction."""
    for proxy in (world.worker_proxy, world.sender_proxy):
        proxy.delay_s = dice.uniform(0.02, 0.15)
    time.sleep(2)
    for proxy in (world.worker_proxy, world.sender_proxy):
        proxy.delay_s = 0


@fault
def refuse_connections(world: World, dice: random.Random) -> None:
    """The network resets each new connection for a second, after it reset the open ones."""
    with cut_off():
        for proxy in (world.worker_proxy, world.sender_proxy):
            proxy.refuse()
            proxy.reset_connections()
        time.sleep(1)
        for proxy in (world.worker_proxy, world.sender_proxy):
            proxy.release()


# -- Server ------------------------------------------------------------------------------------------------------------


@fault
def kill_server(world: World, dice: random.Random) -> None:
    """The server is killed, and started again on its file after a while."""
    with cut_off():
        world.server.kill()
        time.sleep(dice.uniform(0, 1))
        world.server.start()


@fault
def pause_server(world: World, dice: random.Random) -> None:
    """The server stands still for a part of a lease."""
    with cut_off(silent=True):
        world.server.pause()
        time.sleep(dice.uniform(0.1, 1.2))
        world.server.resume()


@fault
def forget_scripts(world: World, dice: random.Random) -> None:
    """The server forgets all scripts again and again."""
    for _ in range(20):
        world.run("SCRIPT", "FLUSH")
        time.sleep(0.05)


@fault
def fill_memory(world: World, dice: random.Random) -> None:
    """The server has no memory left for a second."""
    world.run("CONFIG", "SET", "maxmemory", 1)
    time.sleep(1)
    world.run("CONFIG", "SET", "maxmemory", 0)


@fault
def fill_disk(world: World, dice: random.Random) -> None:
    """The file to which the server writes each change cannot grow for a while."""
    assert isinstance(world.server, ShiftedServer)
    with cut_off():
        world.server.limit_files(world.server.written_bytes + dice.randint(0, 2000))
        time.sleep(dice.uniform(1, 2))
        world.server.limit_files(-1)
        wait_until(lambda: b"aof_last_write_status:ok" in world.run("INFO", "persistence"))


@fault
def evict_keys(world: World, dice: random.Random) -> None:
    """The server throws keys away, because it is used as a cache."""
    used = int(world.run("INFO", "memory").decode().split("used_memory:")[1].split("\r")[0])
    world.run("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    world.run("CONFIG", "SET", "maxmemory", used - 20_000)
    time.sleep(0.2)
    world.run("CONFIG", "SET", "maxmemory", 0)
    world.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    note("cut off", "evict", pids=[], since_s=0, lasted_s=math.inf)  # the lock or the lease of any call may be gone


@fault
def lack_replicas(world: World, dice: random.Random) -> None:
    """The server refuses writes for a second, because it has too few replicas."""
    with cut_off():
        world.run("CONFIG", "SET", "min-replicas-to-write", 3)
        time.sleep(1)
        world.run("CONFIG", "SET", "min-replicas-to-write", 0)


@fault
def close_clients(world: World, dice: random.Random) -> None:
    """The server closes all connections and takes few new ones for a second."""
    with cut_off():
        world.run("CONFIG", "SET", "maxclients", 20)
        world.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(1)
        world.run("CONFIG", "SET", "maxclients", 10_000)


@fault
def set_clock_forward(world: World, dice: random.Random) -> None:
    """The clock of the server is an hour ahead from now on."""
    with cut_off(for_sure=True):
        _shift_clock(world, 3_600_000)


@fault
def set_clock_back(world: World, dice: random.Random) -> None:
    """The clock of the server goes back by up to two seconds."""
    _shift_clock(world, -dice.randint(10, 2000))


def _shift_clock(world: World, by_ms: int) -> None:
    move_clock(world.clock, by_ms)
    time.sleep(1)


def move_clock(clock: Path, by_ms: int) -> None:
    """Move the clock of the processes that read this file."""
    successor = clock.with_suffix(".new")
    successor.write_text(str(int(clock.read_text()) + by_ms))
    successor.rename(clock)  # nothing must ever read a half of it


@fault
def set_client_clocks(world: World, dice: random.Random) -> None:
    """The clocks of all senders and workers go forward or back, by up to a day."""
    assert isinstance(world, ClientClocksWorld)
    move_clock(world.client_clock, dice.choice([-86_400_000, -3_600_000, -2_000, 2_000, 3_600_000, 86_400_000]))
    time.sleep(1)


@fault
def end_database_connections(world: World, dice: random.Random) -> None:
    """The database ends all its connections, several times."""
    assert isinstance(world, DatabaseWorld)
    for _ in range(dice.randint(1, 4)):
        world.cluster.end_connections("shop")
        time.sleep(dice.uniform(0, 0.5))


@fault
def crash_database(world: World, dice: random.Random) -> None:
    """The database crashes, and is back after a while."""
    assert isinstance(world, DatabaseWorld)
    world.cluster.crash()
    time.sleep(dice.uniform(0, 2))
    world.cluster.start()


@fault
def send_garbage(world: World, dice: random.Random) -> None:
    """Other programs write what no client of a queue would."""
    now_ms = int(time.time() * 1000)
    for number in range(20):
        message_id = f"{dice.getrandbits(128):032x}"
        body = dice.choice(["", "{", "[]", '{"v": 99}', "\x00\xff", "NaN", "[" * 500, '{"task": 1, "args": {}}'])
        world.run("ZADD", f"{world.namespace}:default", now_ms, message_id)
        if number % 4:  # others are members without a body
            world.run("HSET", f"{world.namespace}:default:Q", message_id, body)
    time.sleep(0.3)


# -- Failovers ---------------------------------------------------------------------------------------------------------


def failover(function: Fault) -> Fault:
    """Make a fault known after which the server may not know what the workers have told the one before it."""

    @wraps(function)
    def noted(world: World, dice: random.Random) -> None:
        with cut_off(for_sure=True):
            function(world, dice)

    return fault(noted)


@failover
def kill_primary(world: World, dice: random.Random) -> None:
    """The primary is killed; Sentinel promotes a replica; the former one comes back as a replica."""
    assert isinstance(world, SentinelWorld)
    world.topology.kill_primary()
    note("promoted", "replica")
    world.topology.settle()


@failover
def order_failover(world: World, dice: random.Random) -> None:
    """An operator orders a failover at a sentinel."""
    assert isinstance(world, SentinelWorld)
    world.topology.fail_over()
    note("promoted", "replica")
    world.topology.settle()


@failover
def pause_primary(world: World, dice: random.Random) -> None:
    """The primary stands still, a replica is promoted, and the old one wakes up and believes that it is the primary."""
    assert isinstance(world, SentinelWorld)
    old = world.topology.primary
    world.topology.pause_primary()
    note("promoted", "replica")
    time.sleep(0.5)
    old.resume()
    world.topology.settle()


@fault
def move_slot(world: World, dice: random.Random) -> None:
    """The slot of all keys moves to another node."""
    assert isinstance(world, ClusterWorld)
    owner = world.cluster.owner_of(TAG)
    world.cluster.move(TAG, dice.choice([node for node in world.cluster.masters() if node is not owner]))


@failover
def kill_node(world: World, dice: random.Random) -> None:
    """A node with shards is killed, its replica takes over, and it comes back as a replica."""
    assert isinstance(world, ShardedWorld)
    world.fail_over(lambda node, _: node.kill(), how="FORCE", dice=dice)
    world.cluster.heal()


@failover
def kill_node_and_elect(world: World, dice: random.Random) -> None:
    """A node with shards is killed; the others notice it, and elect its replica."""
    assert isinstance(world, ShardedWorld)
    nodes = world.cluster.nodes

    def kill(node: Node, _: Node) -> None:
        for each in nodes:
            each.set_timeout(SOON_MS)
        node.kill()

    world.fail_over(kill, how=None, dice=dice)
    for each in nodes:
        if each.is_alive:
            each.set_timeout(NEVER_MS)
    world.cluster.heal()


@failover
def kill_node_without_replica(world: World, dice: random.Random) -> None:
    """A node is killed a moment after it was cut off from its replica, which is behind and takes over."""
    assert isinstance(world, ShardedWorld)

    def cut_off_and_kill(node: Node, replica: Node) -> None:
        replica.pause()
        node.run("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(dice.uniform(0.05, 0.4))
        node.kill()
        replica.resume()

    world.fail_over(cut_off_and_kill, how="FORCE", dice=dice)
    world.cluster.heal()


@failover
def order_node_failover(world: World, dice: random.Random) -> None:
    """An operator orders a failover at a replica."""
    assert isinstance(world, ShardedWorld)
    world.fail_over(lambda *_: None, how="", dice=dice)
    world.cluster.heal()


@failover
def pause_node(world: World, dice: random.Random) -> None:
    """A node stands still, its replica takes over, and it wakes up and believes that it is the primary."""
    assert isinstance(world, ShardedWorld)
    old = world.fail_over(lambda node, _: node.pause(), how="FORCE", dice=dice)
    time.sleep(dice.uniform(0, 0.5))
    old.resume()
    world.cluster.heal()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Faults that come in one run, and what they may cause."""

    name: str
    #: Faults of the plan in docs/explanation/reliability.md.
    covers: str
    faults: tuple[str, ...]
    rules: Rules = Rules()
    world: type[World] = World
    #: Kinds of calls that are sent in addition, with their numbers beside a hundred others.
    calls: Mapping[str, int] = field(default_factory=dict)

    def steps(self, seed: str) -> list[Step]:
        """Return the steps of a seed."""
        dice = random.Random(f"{self.name}:{seed}")
        picked = [dice.choice(self.faults) for _ in range(STEPS)]
        return [Step(each, dice.uniform(0.3, 1.2), dice.random()) for each in picked]


@dataclass(frozen=True, slots=True)
class Step:
    """A fault, after a pause."""

    fault: str
    pause_s: float
    seed: float

    def take(self, world: World) -> None:
        time.sleep(self.pause_s)
        FAULTS[self.fault](world, random.Random(self.seed))


#: After a failover work resumes within five seconds of the promotion.
FAILOVERS = Rules(may_forget_cancellations=True, resumes_within_s=5)
MAY_LOSE = Rules(may_lose=True, resumes_within_s=5)
#: Faults that need a world of their own, or lose what was acknowledged.
APART = frozenset(
    (
        *(
            "work_on",
            "evict_keys",
            "set_client_clocks",
            "end_database_connections",
            "crash_database",
            "kill_node_and_elect",
        ),
        *("kill_primary", "order_failover", "pause_primary", "move_slot"),
        *("kill_node", "kill_node_without_replica", "order_node_failover", "pause_node"),
    )
)

SCENARIOS = [
    Scenario("nothing", "a run without faults", ("pause_child_shortly",)),
    Scenario("kills", "F1", ("kill_child", "kill_child", "kill_worker")),
    Scenario("deployments", "F2", ("stop_worker",)),
    Scenario("server dies", "F3", ("kill_server", "kill_server", "pause_server")),
    Scenario("sentinel", "F4", ("kill_primary",), FAILOVERS, SentinelWorld),
    Scenario("stale primary", "F4", ("order_failover", "pause_primary"), FAILOVERS, TwoReplicasWorld),
    Scenario("clock", "F5", ("set_clock_forward", "set_clock_back")),
    Scenario("resets", "F6", ("reset_connections", "refuse_connections")),
    Scenario("lost replies", "F7", ("lose_replies", "cut_reply")),
    Scenario("black holes", "F8", ("short_black_hole", "short_black_hole", "long_black_hole")),
    Scenario("slow network", "F9", ("slow_network", "cut_reply", "pause_server")),
    Scenario("full server", "F10", ("fill_memory", "lack_replicas")),
    Scenario("full disk", "F17", ("fill_disk",)),
    Scenario("eviction", "keys thrown away", ("evict_keys",), MAY_LOSE),
    Scenario("client clocks", "F5", ("set_client_clocks",), world=ClientClocksWorld),
    Scenario("lost scripts", "F11", ("forget_scripts",)),
    Scenario("pauses", "F12", ("pause_child", "pause_child_shortly")),
    Scenario("deadly calls", "F13", ("kill_child", "pause_child_shortly"), calls={"deadly": 2}),
    Scenario("memory", "F13", ("kill_child", "pause_child_shortly"), calls={"hungry": 3}),
    Scenario(
        "large calls", "F18", ("lose_replies", "cut_reply", "reset_connections", "slow_network"), calls={"large": 20}
    ),
    Scenario("schedules", "F22", ("pause_worker", "kill_server", "pause_worker")),
    Scenario("two releases", "F2 F23", ("stop_worker",), world=TwoReleasesWorld, calls={"added": 10}),
    Scenario("older release", "F23", ("stop_worker", "kill_child", "kill_worker"), world=OlderWorld),
    Scenario("soak", "F20", ("work_on",), world=SoakWorld),
    Scenario(
        "database",
        "F21",
        ("end_database_connections", "crash_database", "kill_server"),
        world=DatabaseWorld,
        calls={"boxed": 20},
    ),
    Scenario("cluster", "F14", ("move_slot",), world=ClusterWorld),
    Scenario(
        "sharded cluster",
        "F4 F14",
        ("kill_node", "kill_node_without_replica", "order_node_failover", "pause_node"),
        FAILOVERS,
        ShardedWorld,
    ),
    Scenario("election", "F4 F14", ("kill_node_and_elect",), FAILOVERS, ShardedWorld),
    Scenario("unconfirmed", "F4 F14", ("kill_node", "kill_node_without_replica"), MAY_LOSE, UnconfirmedWorld),
    Scenario("garbage", "F15", ("send_garbage",)),
    Scenario("many connections", "F16", ("close_clients", "reset_connections")),
    Scenario(
        "everything",
        "all of one server",
        tuple(name for name in FAULTS if name not in APART),
        calls={"deadly": 1},
    ),
]
