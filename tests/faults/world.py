"""The servers, workers and senders of one run, and what faults do to them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compiling import compiled
from rsmq_django.core.keys import shard_namespace
from tests.chaos.fleet import children_of, usage
from tests.cluster import Cluster, Node, ReplicatedCluster
from tests.fault_proxy import FaultProxy
from tests.faults.history import VARIABLE, note
from tests.postgres_server import PostgresCluster, find_binaries
from tests.sentinel_topology import SentinelTopology, Server
from tests.support import wait_until
from tests.worker.processes import ROOT, WorkerProcess

WORKERS, SENDERS = 2, 2
#: What is killed later than this after SIGTERM hangs.
STOP_S = 60
#: The server keeps what it has acknowledged when it is killed: the file is written before each reply.
KEEPS_DATA = ("--appendonly", "yes", "--appendfsync", "no")
TAG = "{rsmq}"
ID_CHARACTERS = 32
SOME_DAYS_AGO = ("--first-parent", "--before", "5 days ago", "HEAD")
#: What a process may need more while nothing leaks, and once more in each thousand seconds.
MOST_MEMORY_BYTES = 1 << 20
#: Files, threads, clients and keys that may be there for the first time after the second step.
MOST_MORE = 3


class World:
    """One server with its clock, behind a proxy for the workers and another one for the senders."""

    namespace, topic = "rsmq", "orders"
    #: How many shards the queue of the tasks has.
    shards = 1

    def __init__(self, directory: Path, seed: str, *, calls: Mapping[str, int]) -> None:
        self.directory, self.calls, self.seed = directory, calls, seed
        self.workers: list[WorkerProcess] = []
        self.senders: list[subprocess.Popen[bytes]] = []
        self._logs = 0
        os.environ[VARIABLE] = str(directory / "history")
        self.start_servers()

    # -- Servers ----------------------------------------------------------------------------------------------------

    @staticmethod
    def check_machine() -> None:
        """Raise pytest.skip.Exception when this machine lacks a program that it needs."""

    def start_servers(self) -> None:
        """Start what workers and senders use."""
        self.clock = self.directory / "clock"
        self.clock.write_text("0")
        self.server = ShiftedServer(self.directory / "server", self.clock)
        self.worker_proxy, self.sender_proxy = FaultProxy(self.server.url), FaultProxy(self.server.url)

    def stop_servers(self) -> None:
        self.worker_proxy.close()
        self.sender_proxy.close()
        self.server.kill()

    def connection_of(self, role: str) -> dict[str, Any]:
        """Return the settings of the connection of workers or senders."""
        return {"URL": (self.worker_proxy if role == "worker" else self.sender_proxy).url}

    def run(self, *words: str | int) -> Any:
        """Return the reply of the server that has the keys."""
        return self.server.run(*words)

    def now_s(self) -> int:
        """Return the time of the server."""
        return int(self.run("TIME")[0])

    # -- Processes --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start workers and senders, and wait until each has done something."""
        for _ in range(WORKERS):
            self.start_worker()
        wait_until(lambda: all(self._runs(worker) for worker in self.workers))
        for number in range(SENDERS):
            place = self.place_of("sender", number)
            words = [sys.executable, "-m", "tests.faults.sender", f"call-{number}", self.seed, json.dumps(self.calls)]
            with (self.directory / f"sender-{number}").open("wb") as log:
                self.senders.append(
                    subprocess.Popen(words, cwd=place, env=self.environment("sender"), stdout=log, stderr=log)
                )

    def place_of(self, role: str, number: int) -> Path:
        """Return the directory with the package of a worker or sender."""
        return ROOT

    @staticmethod
    def _runs(worker: WorkerProcess) -> bool:
        assert worker.process.poll() is None, f"a worker ended:\n{worker.output}"
        return len(children_of(worker)) >= 2

    def environment(self, role: str) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.faults.project.settings",
            "RSMQ_FAULTS_TOPIC": self.topic,
            "RSMQ_FAULTS_SHARDS": str(self.shards),
            "RSMQ_FAULTS_CONNECTION": json.dumps({"NAMESPACE": self.namespace, **self.connection_of(role)}),
        }

    def start_worker(self) -> WorkerProcess:
        self._logs += 1
        words = ("--processes", "2", "--threads", "4")
        log, place = self.directory / f"worker-{self._logs}", self.place_of("worker", self._logs)
        self.workers.append(WorkerProcess(words, environment=self.environment("worker"), log=log, directory=place))
        return self.workers[-1]

    def stop_worker(self, worker: WorkerProcess, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop a worker as a deployment does, and see that it ends by itself and in order."""
        wait_until(lambda: self._runs(worker))  # until then a signal ends it as any other program
        worker.send(number)
        status = worker.wait()
        assert status == 0, f"a worker ended with status {status}:\n{worker.output}"
        self.workers.remove(worker)

    def kill(self, pid: int) -> None:
        """Note that a process is killed, and kill it (SIGKILL); what it ran may run elsewhere at once."""
        note("killed", "kill", pid=pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def child(self, dice: random.Random) -> int:
        """Return the pid of any process that runs tasks."""
        return dice.choice(wait_until(lambda: [pid for worker in self.workers for pid in children_of(worker)]))

    def stop_senders(self) -> None:
        for sender in self.senders:
            sender.terminate()
        for number, sender in enumerate(self.senders):
            log = self.directory / f"sender-{number}"
            assert sender.wait(STOP_S) == 0, f"a sender ended with an error:\n{log.read_text()}"
        self.senders.clear()

    def close(self) -> None:
        """End everything at once."""
        for sender in self.senders:
            sender.kill()
            sender.wait()
        for worker in self.workers:
            worker.destroy()
        self.stop_servers()

    # -- What is left -----------------------------------------------------------------------------------------------

    def dead_letters(self) -> str:
        """Return the contents of all keys with dead letters, as one text."""
        return " ".join(_dead_letters_of(run) for run in self.servers())

    def servers(self) -> list[Callable[..., Any]]:
        """Return a function for each server with keys, which runs a command there."""
        return [self.run]

    def left_over(self) -> list[str]:
        """Return what should not be there when all is done."""
        return [problem for run in self.servers() for problem in _fields_without_a_message(run)]


def _fields_without_a_message(run: Callable[..., Any]) -> list[str]:
    """Return the queues with fields of messages that do not exist."""
    problems = []
    for hash_key in (key.decode() for key in run("KEYS", "*:Q") if run("TYPE", key.decode()) == b"hash"):
        if run("TYPE", hash_key[:-2]) in (b"zset", b"none"):
            messages = set(run("ZRANGE", hash_key[:-2], 0, -1))
            ids = {field.partition(b":")[0] for field in run("HKEYS", hash_key)}
            if left := sorted(each.decode() for each in ids - messages if len(each) == ID_CHARACTERS):
                problems.append(f"{hash_key} has fields of messages that do not exist: {', '.join(left[:3])}")
    return problems


def _dead_letters_of(run: Callable[..., Any]) -> str:
    texts = []
    for key in run("KEYS", "*dead*"):
        kind = run("TYPE", key.decode())
        read = {b"hash": ("HVALS",), b"stream": ("XRANGE", "-", "+"), b"list": ("LRANGE", 0, -1)}.get(kind)
        if read:
            texts.append(repr(run(read[0], key.decode(), *read[1:])))
    return " ".join(texts)


class ShiftedServer(Server):
    """A server whose wall clock is moved by a file."""

    def __init__(self, directory: Path, clock: Path) -> None:
        # A file that reaches the limit of its size is an error of the write, and no signal that ends the server.
        self._environment = ["sh", "-c", "trap '' XFSZ; exec env \"$@\"", "sh"]
        self._environment += [f"{name}={value}" for name, value in shifted(clock).items()]
        super().__init__(directory, KEEPS_DATA)

    def command(self) -> list[str]:
        return [*self._environment, *super().command()]

    def limit_files(self, most_bytes: int) -> None:
        """Let no file of the server grow beyond this size, as on a full disk; -1: let all grow."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

    @property
    def written_bytes(self) -> int:
        """Return the size of the largest file of the server."""
        return max(each.stat().st_size for each in self.directory.rglob("*") if each.is_file())


def shifted(clock: Path) -> dict[str, str]:
    """Return the environment of a process whose wall clock is moved by a file."""
    shim = compiled(Path(__file__).with_name("clock.c"), "-shared", "-fPIC", name="clock-{}.so")
    return {"LD_PRELOAD": str(shim), "RSMQ_FAULTS_CLOCK": str(clock)}


class ClientClocksWorld(World):
    """Senders and workers have a wall clock that is moved by a file."""

    def start_servers(self) -> None:
        super().start_servers()
        self.client_clock = self.directory / "client-clock"
        self.client_clock.write_text("0")

    def environment(self, role: str) -> dict[str, str]:
        return super().environment(role) | shifted(self.client_clock)


class TwoReleasesWorld(World):
    """Workers of an old and a new release take turns; the old one lacks a task of which calls are sent."""

    def environment(self, role: str) -> dict[str, str]:
        is_old = role == "worker" and self._logs % 2 == 1
        return super().environment(role) | {"RSMQ_FAULTS_RELEASE": "old" if is_old else "new"}

    def stop_senders(self) -> None:
        """Stop the senders; a worker of the new release is the last one that starts."""
        super().stop_senders()
        while self._logs % 2 == 1:
            self.start_worker()


class OlderWorld(World):
    """Each second worker, and one of two senders, have the package of an older revision."""

    #: A revision of git; without one the last release, and before the first one what the package was some days ago.
    revision = ""

    @classmethod
    def check_machine(cls) -> None:
        if not cls.found_revision():
            pytest.skip("this needs the history of git: --older REVISION")

    @classmethod
    def found_revision(cls) -> str:
        """Return the revision, or an empty text."""
        if cls.revision:
            return _git("rev-parse", "--verify", "--quiet", f"{cls.revision}^{{commit}}")
        return _git("describe", "--tags", "--abbrev=0", "HEAD^") or _git("rev-list", "-1", *SOME_DAYS_AGO)

    def start_servers(self) -> None:
        super().start_servers()
        self.check_out()

    def check_out(self) -> None:
        """Write the older package into a directory, with the tests of this revision."""
        self.older = self.directory / "older"
        self.older.mkdir()
        words = ["git", "archive", self.found_revision(), "rsmq_django", "manage.py"]
        files = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=self.older, input=files, check=True)
        for name in ("tests", "example_project"):
            (self.older / name).symlink_to(ROOT / name)

    def place_of(self, role: str, number: int) -> Path:
        return self.older if number % 2 else ROOT


def _git(*words: str) -> str:
    """Return the line that git prints; nothing without git or its history."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


class SoakWorld(World):
    """The same processes work on, and are measured."""

    #: For how long, in steps of equal length: the first one is the warm-up.
    lasts_s = 20.0

    def start_servers(self) -> None:
        super().start_servers()
        #: The figures of each step.
        self.measured: list[list[dict[str, int]]] = []

    def measure(self) -> dict[str, int]:
        """Return what must not grow, by name."""
        found = {"clients": int(_field("connected_clients", self.run("INFO", "clients")))}
        keys = dict(each.split("=") for each in _field("db0", self.run("INFO", "keyspace")).split(","))
        kept_by_the_topic = int(self.run("GET", f"{self.topic}:nextIndex") or 0)
        found["lasting keys"] = int(keys["keys"]) - int(keys["expires"]) - kept_by_the_topic
        for pid in (pid for worker in self.workers for pid in (worker.process.pid, *children_of(worker))):
            memory, found[f"threads of {pid}"], found[f"files of {pid}"] = usage(pid)
            found[f"memory of {pid}"] = memory or 0
        return found

    def grown(self) -> list[str]:
        """Return what was always more in the last step than ever in the second one."""
        early, late = self.measured[1], self.measured[-1]
        if early[0].keys() != late[-1].keys():
            return ["processes were replaced"]
        growth = {name: min(each[name] for each in late) - max(each[name] for each in early) for name in early[0]}
        bytes_more = int(MOST_MEMORY_BYTES * (1 + self.lasts_s / 1000))
        most = {name: bytes_more if name.startswith("memory") else MOST_MORE for name in growth}
        return [f"{name}: {grew:,} more" for name, grew in growth.items() if grew > most[name]]

    def left_over(self) -> list[str]:
        return super().left_over() + (self.grown() if len(self.measured) > 1 else [])


def _field(name: str, info: bytes) -> str:
    return info.decode().split(f"{name}:")[1].split("\r")[0]


class DatabaseWorld(World):
    """A PostgreSQL database with an outbox, beside the server."""

    @staticmethod
    def check_machine() -> None:
        find_binaries()

    def start_servers(self) -> None:
        super().start_servers()
        self.cluster = PostgresCluster()
        self.database = self.cluster.make_database("shop")
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=self.environment("sender"), check=True)

    def stop_servers(self) -> None:
        super().stop_servers()
        self.cluster.stop()

    def environment(self, role: str) -> dict[str, str]:
        return super().environment(role) | {"RSMQ_FAULTS_DATABASE": json.dumps(self.database)}


class SentinelWorld(World):
    """A primary, two replicas and three sentinels; senders wait for one replica."""

    replicas = 1

    def start_servers(self) -> None:
        self.topology = SentinelTopology(self.directory / "sentinel")

    def stop_servers(self) -> None:
        self.topology.stop()

    def connection_of(self, role: str) -> dict[str, Any]:
        return {"URL": self.topology.url, "TIMEOUT_S": 5, "DURABILITY": {"REPLICAS": self.replicas, "TIMEOUT_S": 2}}

    def run(self, *words: str | int) -> Any:
        return self.topology.primary.run(*words)


class TwoReplicasWorld(SentinelWorld):
    """The same; senders wait for both replicas, so a primary that one of them has left confirms nothing."""

    replicas = 2


class ClusterWorld(World):
    """Three nodes with slots and a spare one; all keys are in one slot."""

    namespace, topic = TAG, "{orders}"

    def start_servers(self) -> None:
        (self.directory / "cluster").mkdir()
        self.cluster = Cluster(self.directory / "cluster")

    def stop_servers(self) -> None:
        self.cluster.stop()

    def connection_of(self, role: str) -> dict[str, Any]:
        owner = self.cluster.owner_of(TAG)
        return {"URL": next(node for node in self.cluster.masters() if node is not owner).url}

    def run(self, *words: str | int) -> Any:
        return self.cluster.owner_of(TAG).run(*words)


class ShardedWorld(World):
    """Three primaries of a cluster, with a replica each, on which a queue has shards; senders wait for the replica."""

    namespace, topic, shards = TAG, "{orders}", 8
    replicas: int | None = 1

    def start_servers(self) -> None:
        (self.directory / "cluster").mkdir()
        self.cluster = ReplicatedCluster(self.directory / "cluster")

    def stop_servers(self) -> None:
        self.cluster.stop()

    def connection_of(self, role: str) -> dict[str, Any]:
        durability = {"REPLICAS": self.replicas, "TIMEOUT_S": 2} if self.replicas else None
        return {"URL": self.cluster.nodes[0].url, "TIMEOUT_S": 5, "DURABILITY": durability}

    def run(self, *words: str | int) -> Any:
        return self.cluster.owner_of(TAG).run(*words)

    def servers(self) -> list[Callable[..., Any]]:
        return [node.run for node in self.cluster.masters()]

    def fail_over(self, breaks: Callable[[Node, Node], None], *, how: str | None, dice: random.Random) -> Node:
        """Call `breaks` with a node that has shards and its replica, which takes over; return the former primary.

        `how` is the order to the replica; None: it is elected by the other nodes.
        """
        owners = [self.cluster.owner_of(shard_namespace(TAG, shard)) for shard in range(self.shards)]
        primary = dice.choice(owners)
        (replica,) = self.cluster.replicas_of(primary)
        breaks(primary, replica)
        if how is None:
            wait_until(lambda: replica.run("ROLE")[0] == b"master")
        else:
            replica.take_over(how)
        # The id of a call begins with the number of its shard.
        note("promoted", "replica", begins=[f"{shard:02}" for shard in range(self.shards) if owners[shard] is primary])
        return primary


class UnconfirmedWorld(ShardedWorld):
    """The same; senders wait for nothing."""

    replicas = None
