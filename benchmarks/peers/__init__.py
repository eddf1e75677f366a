"""The other task queues. One module each, all with the actions of act.py; this page says how they are run.

Each runs the way its own documentation recommends for many short tasks, without keeping results: in one process, and
the best known ones also with a process for each core, as our default options are. A peer is measured when its packages
are installed, which `make bench-peers` does.
"""

from __future__ import annotations

from ..candidates import DEFAULT_PROCESSES, SEVERAL, Candidate, Case
from ..places import NODE_MODULES, PEER_PYTHON


def _peer(
    name: str,
    module: str,
    *cases: tuple[str, float],
    is_well_known: bool = False,
    has_bulk: bool = False,
    has_site: bool = False,
    language: str = "python",
) -> Candidate:
    every = [_case(case, rate) for case, rate in cases]
    if is_well_known and DEFAULT_PROCESSES > 1:
        every.append(_case(*cases[0], processes=DEFAULT_PROCESSES))
    return Candidate(
        name=name,
        module=module if language == "node" else f"benchmarks.peers.{module}",
        cases=tuple(every),
        has_bulk=has_bulk,
        has_site=has_site,
        language=language,
    )


def _case(name: str, rate: float, *, processes: int = 1) -> Case:
    return Case(
        name=name if processes == 1 else name + SEVERAL,
        environment={"BENCH_CASE": name},
        expected_rate=rate * processes,
        processes=processes,
        workers=processes,
        forks=name == "fork",
    )


#: The rate of each case chooses how many tasks its first round has.
PEERS = (
    _peer("Celery", "celery_peer", ("solo", 1_500), ("prefork", 1_200), is_well_known=True, has_bulk=True),
    _peer("RQ", "rq_peer", ("simple", 400), ("fork", 60), is_well_known=True, has_bulk=True),
    _peer("Dramatiq", "dramatiq_peer", ("8 threads", 5_500), is_well_known=True),
    _peer("Huey", "huey_peer", ("1 thread", 3_500), is_well_known=True, has_site=True),
    _peer("taskiq", "taskiq_peer", ("stream", 5_000), is_well_known=True),
    _peer("SAQ", "saq_peer", ("100 coroutines", 1_900)),
    _peer("streaq", "streaq_peer", ("100 coroutines", 1_500), has_bulk=True),
    _peer("django-tasks-db", "django_tasks_db_peer", ("SQLite", 600)),
    _peer("Node rsmq", "rsmq_peer", ("100 loops", 40_000), has_bulk=True, language="node"),
    _peer("BullMQ", "bullmq_peer", ("concurrency 100", 25_000), is_well_known=True, has_bulk=True, language="node"),
)


def installed_peers() -> list[Candidate]:
    """Return the peers whose packages are installed."""
    is_installed = {"python": PEER_PYTHON.exists(), "node": NODE_MODULES.is_dir()}
    return [peer for peer in PEERS if is_installed[peer.language]]
