"""What this project wants to reach, and whether a run reached it.

A goal is a ratio to the C client of the same minute, to the best peer of the same run, or a plain bound. What cannot
be measured yet says why instead of a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .candidates import OURS
from .results import Results, Row

Read = Callable[[Results], float | None]

NEEDS_PEERS = "make bench-peers"
NOT_MEASURED = "not measured"
NODE = ("BullMQ", "Node rsmq")
#: Not a worker but a loop around receive and delete: compared with what it is, not with workers.
LOOPS = ("Node rsmq",)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One bound."""

    number: str
    text: str
    read: Read = lambda results: None
    at_least: float | None = None
    at_most: float | None = None
    #: Why there is no figure, where there is none.
    missing: str = NOT_MEASURED

    @property
    def bound(self) -> str:
        """Return the bound as people write it."""
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"

    def verdict(self, value: float | None) -> str:
        """Say whether a value reaches the goal."""
        if value is None:
            return self.missing
        reached = value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)
        return "reached" if reached else "NOT REACHED"


# -- Reading ----------------------------------------------------------------------------------------------------------


def ours(figure: str, case: str) -> Row:
    """Return a row of ours."""
    return (figure, OURS.name, case)


def median(figure: str, case: str, value: str) -> Read:
    """Read a figure of ours."""
    return lambda results: results.median(ours(figure, case), value)


def ratio(figure: str, case: str, reference: str) -> Read:
    """Read a rate of ours divided by one of the C client's."""
    return lambda results: results.ratio(ours(figure, case), "rate", reference)


def over_all(sum_up: Callable[[Iterable[float]], float], reads: Iterable[Read]) -> Read:
    """Read the least, largest or sum of several figures; nothing when one of them is missing."""
    every = list(reads)

    def read(results: Results) -> float | None:
        values = [value for value in (each(results) for each in every) if value is not None]
        return sum_up(values) if values and len(values) == len(every) else None

    return read


def divided(over: Read, under: Read) -> Read:
    """Read one figure divided by another."""

    def read(results: Results) -> float | None:
        top, bottom = over(results), under(results)
        return None if top is None or not bottom else top / bottom

    return read


def best_peer(
    figure: str, *, cases: tuple[str, ...] = (), only: tuple[str, ...] = (), but: tuple[str, ...] = ()
) -> Read:
    """Read the highest rate of the peers."""

    def read(results: Results) -> float | None:
        rates = [
            results.median(row, "rate")
            for row in results.rows()
            if row[0] == figure
            and row[1] not in (OURS.name, *but)
            and (not only or row[1] in only)
            and (not cases or row[2] in cases)
        ]
        return max((rate for rate in rates if rate is not None), default=None)

    return read


def _times_peer(number: str, text: str, mine: Read, peer: Read, at_least: float) -> Goal:
    return Goal(number=number, text=text, read=divided(mine, peer), at_least=at_least, missing=NEEDS_PEERS)


# -- The goals --------------------------------------------------------------------------------------------------------

INLINE, THREADS, ASYNCIO = (median("drain", case, "rate") for case in ("1 thread", "8 threads", "asyncio"))
ONE_BY_ONE, BULK = median("enqueue", "one", "rate"), median("enqueue", "bulk", "rate")
PYTHON_WORKERS = best_peer("drain", but=NODE)
PREFORK = best_peer("drain", only=("Celery",), cases=("prefork",))

CRASHES = ("kill -9 of a process", "kill -9 of everything")

DRAIN_GOALS = [
    Goal(number="P1", text="drain, 1 thread / L_cycle", read=ratio("drain", "1 thread", "L_cycle"), at_least=0.40),
    Goal(
        number="P1", text="drain, 1 thread: worker us a task", read=median("drain", "1 thread", "worker_us"), at_most=8
    ),
    _times_peer("P1", "drain, 1 thread / best Python peer", INLINE, PYTHON_WORKERS, 10),
    _times_peer("P1", "drain, 1 thread / BullMQ", INLINE, best_peer("drain", only=("BullMQ",)), 3),
    _times_peer("P1", "drain, 1 thread / Celery prefork", INLINE, PREFORK, 40),
    Goal(number="P2", text="drain, 8 threads / L_cycle", read=ratio("drain", "8 threads", "L_cycle"), at_least=0.25),
    Goal(
        number="P2",
        text="drain, 8 threads: worker us a task",
        read=median("drain", "8 threads", "worker_us"),
        at_most=15,
    ),
    Goal(number="P2", text="drain, asyncio / L_cycle", read=ratio("drain", "asyncio", "L_cycle"), at_least=0.25),
    Goal(
        number="P2", text="drain, asyncio: worker us a task", read=median("drain", "asyncio", "worker_us"), at_most=15
    ),
    _times_peer("P2", "drain, 8 threads / best Python peer", THREADS, PYTHON_WORKERS, 6),
    _times_peer("P2", "drain, asyncio / best Python peer", ASYNCIO, PYTHON_WORKERS, 6),
    Goal(
        number="P3",
        text="drain, 2 processes / 1, 8 threads each",
        read=divided(median("drain", "2 processes of 8 threads", "rate"), THREADS),
        at_least=1.0,
    ),
    Goal(
        number="P3",
        text="drain, 2 processes of 1 thread / L_cycle",
        read=ratio("drain", "2 processes of 1 thread", "L_cycle"),
        at_least=0.50,
    ),
]
ENQUEUE_GOALS = [
    Goal(number="P4", text="enqueue one by one / L_send1", read=ratio("enqueue", "one", "L_send1"), at_least=0.50),
    _times_peer("P4", "enqueue one by one / best peer", ONE_BY_ONE, best_peer("enqueue", cases=("one",)), 1.5),
    _times_peer(
        "P4", "enqueue one by one / Celery", ONE_BY_ONE, best_peer("enqueue", cases=("one",), only=("Celery",)), 6
    ),
    Goal(number="P5", text="bulk enqueue / L_send", read=ratio("enqueue", "bulk", "L_send"), at_least=0.35),
    Goal(number="P5", text="bulk enqueue: sender us a task", read=median("enqueue", "bulk", "sender_us"), at_most=5),
    Goal(
        number="P5",
        text="enqueue in one transaction / L_send",
        read=ratio("enqueue", "one transaction", "L_send"),
        at_least=0.35,
    ),
    _times_peer("P5", "bulk enqueue / best bulk API of a peer", BULK, best_peer("enqueue", cases=("bulk",)), 5),
]
WAITING_GOALS = [
    Goal(number="P6", text="idle latency p50, ms", read=median("latency", "publishing sender", "p50_ms"), at_most=1.2),
    Goal(number="P6", text="idle latency p99, ms", read=median("latency", "publishing sender", "p99_ms"), at_most=3),
    *(
        Goal(
            number="P6",
            text=f"silent senders in traffic {value.removesuffix('_ms')}, ms",
            read=median("latency", "silent senders, in traffic", value),
            at_most=at_most,
        )
        for value, at_most in (("p50_ms", 10.0), ("p99_ms", 25.0))
    ),
    Goal(
        number="P6",
        text="silent sender, idle: max, ms",
        read=median("latency", "silent sender, idle", "max_ms"),
        at_most=1000,
    ),
    Goal(number="P7", text="idle, 1 queue: % of a core", read=median("idle", "1 queues", "cpu_percent"), at_most=1),
]
SERVER_GOALS = [
    Goal(
        number="P8",
        text="server us of a life in batches",
        read=over_all(sum, (median("drain", "8 threads", value) for value in ("send_server_us", "server_us"))),
        at_most=7,
    ),
    Goal(
        number="P8",
        text="server us of a life one at a time",
        read=median("server", "one at a time", "life_server_us"),
        at_most=45,
    ),
]
OTHER_GOALS = [
    Goal(number="P9", text="admin pages at 1M messages, ms", at_most=50, missing="not yet: no admin pages"),
    Goal(
        number="P10",
        text="bytes of a waiting message",
        read=median("memory", "47-byte message", "waiting_bytes"),
        at_most=300,
    ),
    Goal(
        number="P10",
        text="bytes of a received message",
        read=median("memory", "47-byte message", "received_bytes"),
        at_most=540,
    ),
    Goal(
        number="P11", text="appendonly everysec / without", read=median("appendonly", "everysec", "kept"), at_least=0.75
    ),
    Goal(
        number="P12",
        text="kill -9: tasks lost",
        read=over_all(sum, (median("crash", case, "lost") for case in CRASHES)),
        at_most=0,
    ),
    Goal(
        number="P12",
        text="kill -9: tasks repeated per kill",
        read=over_all(max, (median("crash", case, "repeated_per_kill") for case in CRASHES)),
        at_most=200,
    ),
    Goal(number="P12", text="the same with ack='each'", at_most=8, missing="not yet: no such option"),
    Goal(
        number="P13",
        text="makespan of 10 ms tasks over ideal",
        read=median("makespan", "2 processes of 8 threads", "over_ideal"),
        at_most=0.10,
    ),
]


RELIABLE_GOALS = [
    Goal(
        number="R1",
        text="reliable push / send_many, 100 a call",
        read=divided(median("reliable", "push", "rate"), median("reliable", "send_many", "rate")),
        at_least=1.2,
    ),
    Goal(
        number="R2",
        text="reliable pop + ack / receive_many + delete_many",
        read=divided(median("reliable", "pop + ack", "rate"), median("reliable", "receive_many + delete_many", "rate")),
        at_least=0.6,
    ),
    Goal(
        number="R3",
        text="blocked reader woken p50, ms",
        read=median("reliable", "blocked reader", "p50_ms"),
        at_most=1,
    ),
]

TOPIC_GOALS = [
    Goal(
        number="T1",
        text="topic publish / send_many, 100 a call",
        read=divided(median("topics", "publish", "rate"), median("topics", "send_many", "rate")),
        at_least=1.0,
    ),
    Goal(
        number="T2",
        text="topic read at most once / send_many, 100 a call",
        read=divided(median("topics", "read at most once", "rate"), median("topics", "send_many", "rate")),
        at_least=2.0,
    ),
    Goal(
        number="T3",
        text="slowest of 3 blocked groups woken p99, ms",
        read=median("topics", "slowest of 3 blocked groups", "p99_ms"),
        at_most=10,
    ),
]


def goals(results: Results) -> list[Goal]:
    """Return all goals; those about sizes are for the sizes of this run."""
    depths = [row[2] for row in results.rows() if row[0] == "backlog"]
    queues = [row[2] for row in results.rows() if row[0] == "queues"]
    most, one = (queues[-1], queues[0]) if queues else ("1,000 queues", "1 queues")
    sized = [
        Goal(number="P7", text=f"idle, {most}: % of a core", read=median("idle", most, "cpu_percent"), at_most=3),
        Goal(
            number="P9",
            text=f"drain with {', '.join(depths)} / L_cycle there, least",
            read=over_all(min, (median("backlog", depth, "rate_of_c") for depth in depths)),
            at_least=0.40,
        ),
        Goal(
            number="P9",
            text="attributes of a long queue, ms",
            read=over_all(max, (median("backlog", depth, "count_ms") for depth in depths)),
            at_most=50,
        ),
        Goal(
            number="P14",
            text=f"drain of {most} / one queue",
            read=divided(median("queues", most, "rate"), median("queues", one, "rate")),
            at_least=0.5,
        ),
        Goal(number="P14", text=f"scan of {most}, empty, ms", read=median("idle", most, "scan_ms"), at_most=3),
    ]
    every = [*DRAIN_GOALS, *ENQUEUE_GOALS, *WAITING_GOALS, *SERVER_GOALS, *OTHER_GOALS, *sized]
    return [*sorted(every, key=lambda goal: int(goal.number[1:])), *RELIABLE_GOALS, *TOPIC_GOALS]
