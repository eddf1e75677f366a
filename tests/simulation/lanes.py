"""Runs seeds in processes of their own, some at a time; each lane has a server."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType

from tests.simulation.faults import Step
from tests.simulation.run import Outcome, run
from tests.simulation.server import Server

Job = tuple[int, Sequence[Step]]


class Lanes:
    """Some servers, each of which serves one seed at a time."""

    def __init__(self, count: int) -> None:
        self._servers = [Server() for _ in range(count)]
        #: The end of the pipe of each seed under way, with its process and its server.
        self._running: dict[Connection, tuple[int, Server, Job]] = {}

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for pid, _server, _job in self._running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for server in self._servers:
            server.close()

    def run(self, jobs: Iterator[Job], *, until: Callable[[], object]) -> Iterator[Outcome]:
        """Yield outcomes in the order in which they come, until there is no job, or enough."""
        while True:
            while len(self._running) < len(self._servers) and not until():
                if (job := next(jobs, None)) is None:
                    break
                self._begin(job)
            if not self._running:
                return
            for end in wait(list(self._running)):
                assert isinstance(end, Connection)
                yield self._finish(end)

    def run_one(self, seed: int, steps: Sequence[Step]) -> Outcome:
        """Return the outcome of a seed with these faults, whatever else is under way."""
        server = Server()
        try:
            return self._finish(self._begin((seed, steps), server))
        finally:
            server.close()

    def _begin(self, job: Job, server: Server | None = None) -> Connection:
        busy = [each for _, each, _ in self._running.values()]
        server = server or next(each for each in self._servers if each not in busy)
        reader, writer = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                writer.send_bytes(pickle.dumps(_outcome(job, server)))
                status = 0
            finally:
                os._exit(status)
        writer.close()
        self._running[reader] = pid, server, job
        return reader

    def _finish(self, end: Connection) -> Outcome:
        pid, _, (seed, steps) = self._running.pop(end)
        try:
            outcome: Outcome = pickle.loads(end.recv_bytes())
        except EOFError:
            outcome = Outcome.of_failure(seed, steps, "its process has ended")
        finally:
            end.close()
            os.waitpid(pid, 0)
        return outcome


def _outcome(job: Job, server: Server) -> Outcome:
    seed, steps = job
    try:
        return run(seed, server, steps)
    except Exception:
        return Outcome.of_failure(seed, steps, traceback.format_exc())
