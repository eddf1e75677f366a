"""A private cluster whose nodes share the shards of a queue evenly, and which answers as slowly as it is told to."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from .entrance import Entrance, Pace
from .server import Server, free_port

SLOTS = 16_384
JOIN_WITHIN_S = 60.0


class Node(Server):
    """A server of a cluster, pinned to one core where the system allows it."""

    def __init__(self, number: int, *, has_entrance: bool) -> None:
        super().__init__()
        self.bus_port = free_port()
        self.entrance = Entrance(self.port) if has_entrance else None
        #: The port that clients get, and that the other nodes tell them.
        self.port_for_clients = self.entrance.port if self.entrance else self.port
        self._number = number

    def command(self) -> list[str]:
        """Return the command that starts it."""
        # Nobody is taken for dead because the machine is busy.
        cluster = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port), "--cluster-node-timeout", "60000"]
        cluster += ["--cluster-announce-port", str(self.port_for_clients)]
        return [*super().command(), *cluster]

    def __enter__(self) -> Self:
        super().__enter__()
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self.pid, {cores[self._number % len(cores)]})
        return self

    def __exit__(self, *_: object) -> None:
        if self.entrance:
            self.entrance.close()
        super().__exit__()

    def ask(self, *words: str | int) -> Any:
        """Return the answer to a CLUSTER command."""
        server: Any = self.redis
        return server.execute_command("CLUSTER", *words)

    def is_ready(self, nodes: int) -> bool:
        """Return whether it knows all nodes and the slots of all of them."""
        state: bytes = self.ask("INFO")
        wanted = {b"cluster_state:ok", b"cluster_known_nodes:%d" % nodes, b"cluster_slots_assigned:%d" % SLOTS}
        return wanted <= set(state.split())


class Nodes:
    """Nodes of a cluster, in the place of one server; use it as a context manager.

    Of the slots of the namespaces each node has the same number; which has the other slots does not matter.
    """

    def __init__(self, count: int, namespaces: Sequence[str], *, have_entrances: bool) -> None:
        self._nodes = [Node(number, has_entrance=have_entrances) for number in range(count)]
        self._namespaces = namespaces
        self.port = self._nodes[0].port_for_clients
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.dir = Path(tempfile.mkdtemp(prefix="rsmq-bench-"))
        self._started = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            for node in self._nodes:
                started.enter_context(node)
            self._join()
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _join(self) -> None:
        first = self._nodes[0]
        owners = [slot * len(self._nodes) // SLOTS for slot in range(SLOTS)]
        for number, namespace in enumerate(self._namespaces):
            owners[int(first.ask("KEYSLOT", namespace))] = number % len(self._nodes)
        for number, node in enumerate(self._nodes):
            node.ask("ADDSLOTS", *[slot for slot, owner in enumerate(owners) if owner == number])
            node.ask("SET-CONFIG-EPOCH", number + 1)
            if node is not first:
                first.ask("MEET", "127.0.0.1", node.port_for_clients, node.bus_port)
        deadline = time.monotonic() + JOIN_WITHIN_S
        while not all(node.is_ready(len(self._nodes)) for node in self._nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the {len(self._nodes)} nodes did not find each other")
            time.sleep(0.01)

    def tree_cpu_s(self) -> float | None:
        """Return the processor time of all nodes."""
        used = [node.tree_cpu_s() for node in self._nodes]
        return sum(each for each in used if each is not None) if None not in used else None

    @contextmanager
    def slowed_to(self, pace: Pace | None) -> Iterator[None]:
        """Let each node answer at a pace, for which it needs an entrance; None: as fast as it can."""
        entrances = [node.entrance for node in self._nodes if node.entrance]
        for entrance in entrances:
            entrance.pace = pace
        yield
        for entrance in entrances:
            entrance.pace = None
