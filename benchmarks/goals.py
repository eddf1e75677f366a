"""What this project wants to reach, and whether a run reached it.

A goal is a ratio to the C client of the same minute, to the best peer of the same run, or a plain bound. What cannot
be measured yet says why instead of a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .candidates import OURS, SEVERAL
from .results import Results, Row

Read = Callable[[Results], float | None]

NEEDS_PEERS = "make bench-peers"
MEASURED_APART = "measured apart: docs/how-to/admin.md"
NEEDS_VALGRIND = "needs valgrind and a C compiler"
NOT_MEASURED = "not measured"
#: The row of instructions of a project in which no feature is used.
WITHOUT = "none of them"
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


def product(figure: str, case: str, value: str, reference: str) -> Read:
    """Read a cost of ours times a rate of the C client: how many of its messages fit into one of ours."""
    return lambda results: results.product(ours(figure, case), value, reference)


def least_ratio(figure: str, case: str, reference: str) -> Read:
    """Read the least of all rounds of a rate of ours divided by one of the C client's."""
    return lambda results: min(results.ratios(ours(figure, case), "rate", reference), default=None)


def of_peer(figure: str, who: str, case: str, value: str) -> Read:
    """Read a figure of a peer."""
    return lambda results: results.median((figure, who, case), value)


def of_client(*names: str) -> Read:
    """Read the sum of some costs of the C client."""
    return over_all(sum, [lambda results, name=name: results.reference(name) for name in names])  # type: ignore[misc]


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
    figure: str,
    *,
    cases: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    but: tuple[str, ...] = (),
    has_several: bool = False,
) -> Read:
    """Read the highest rate of the peers, in one process or in a process for each core."""

    def read(results: Results) -> float | None:
        rates = [
            results.median(row, "rate")
            for row in results.rows()
            if row[0] == figure
            and row[1] not in (OURS.name, *but)
            and (not only or row[1] in only)
            and (not cases or row[2] in cases)
            and row[2].endswith(SEVERAL) == has_several
        ]
        return max((rate for rate in rates if rate is not None), default=None)

    return read


def most_beside_features(value: str) -> Read:
    """Read the most instructions of a plain task in projects with a feature, over those in a project without."""

    def read(results: Results) -> float | None:
        rows = [row for row in results.rows() if row[0] == "instructions"]
        beside = [results.median(row, value) for row in rows if row[2] != WITHOUT]
        most = max((count for count in beside if count is not None), default=None)
        without = results.median(ours("instructions", WITHOUT), value)
        return most / without if most is not None and without else None

    return read


# -- The goals --------------------------------------------------------------------------------------------------------


def _at_least(number: str, text: str, read: Read, bound: float, *, missing: str = NOT_MEASURED) -> Goal:
    return Goal(number=number, text=text, read=read, at_least=bound, missing=missing)


def _at_most(number: str, text: str, read: Read, bound: float) -> Goal:
    return Goal(number=number, text=text, read=read, at_most=bound)


def _times_peer(number: str, text: str, mine: Read, peer: Read, bound: float) -> Goal:
    return _at_least(number, text, divided(mine, peer), bound, missing=NEEDS_PEERS)


def _at_most_peer(number: str, text: str, mine: Read, peer: Read, bound: float) -> Goal:
    return Goal(number=number, text=text, read=divided(mine, peer), at_most=bound, missing=NEEDS_PEERS)


def _of_rates(figure: str, over: str, under: str) -> Read:
    return divided(median(figure, over, "rate"), median(figure, under, "rate"))


INLINE, THREADS, ASYNCIO = (median("drain", case, "rate") for case in ("1 thread", "8 threads", "asyncio"))
ONE_BY_ONE, BULK = median("enqueue", "one", "rate"), median("enqueue", "bulk", "rate")
PYTHON_WORKERS = best_peer("drain", but=NODE)
PREFORK = best_peer("drain", only=("Celery",), cases=("prefork",))
SENDERS = best_peer("enqueue", cases=("one",))
CELERY_SENDER = best_peer("enqueue", cases=("one",), only=("Celery",))
SERVER_TIMES = [median("drain", "8 threads", value) for value in ("send_server_us", "server_us")]

CRASHES = ("kill -9 of a process", "kill -9 of everything")
ACK_EACH = "kill -9 of a process, ack='each'"
LOST = [median("crash", case, "lost") for case in (*CRASHES, ACK_EACH)]
REPEATED = [median("crash", case, "repeated_per_kill") for case in CRASHES]

DRAIN_GOALS = [
    _at_least("P1", "drain, 1 thread / L_cycle", ratio("drain", "1 thread", "L_cycle"), 0.40),
    _at_most("P1", "drain, 1 thread: worker us a task", median("drain", "1 thread", "worker_us"), 8),
    _times_peer("P1", "drain, 1 thread / best Python peer", INLINE, PYTHON_WORKERS, 10),
    _times_peer("P1", "drain, 1 thread / BullMQ", INLINE, best_peer("drain", only=("BullMQ",)), 3),
    _times_peer("P1", "drain, 1 thread / Celery prefork", INLINE, PREFORK, 40),
    _at_least("P2", "drain, 8 threads / L_cycle", ratio("drain", "8 threads", "L_cycle"), 0.25),
    _at_most("P2", "drain, 8 threads: worker us a task", median("drain", "8 threads", "worker_us"), 15),
    _at_least("P2", "drain, asyncio / L_cycle", ratio("drain", "asyncio", "L_cycle"), 0.25),
    _at_most("P2", "drain, asyncio: worker us a task", median("drain", "asyncio", "worker_us"), 15),
    _times_peer("P2", "drain, 8 threads / best Python peer", THREADS, PYTHON_WORKERS, 6),
    _times_peer("P2", "drain, asyncio / best Python peer", ASYNCIO, PYTHON_WORKERS, 6),
    _at_least(
        "P3",
        "drain, a process for each core / 1, 8 threads each",
        divided(median("drain", "default options", "rate"), THREADS),
        1.0,
    ),
    _at_least(
        "P3", "drain, 2 processes of 1 thread / L_cycle", ratio("drain", "2 processes of 1 thread", "L_cycle"), 0.50
    ),
]
ENQUEUE_GOALS = [
    _at_least("P4", "enqueue one by one / L_send1", ratio("enqueue", "one", "L_send1"), 0.50),
    _times_peer("P4", "enqueue one by one / best peer", ONE_BY_ONE, SENDERS, 1.5),
    _times_peer("P4", "enqueue one by one / Celery", ONE_BY_ONE, CELERY_SENDER, 6),
    _at_least("P5", "bulk enqueue / L_send", ratio("enqueue", "bulk", "L_send"), 0.35),
    _at_most("P5", "bulk enqueue: sender us a task", median("enqueue", "bulk", "sender_us"), 5),
    _at_least("P5", "enqueue in one transaction / L_send", ratio("enqueue", "one transaction", "L_send"), 0.35),
    _times_peer("P5", "bulk enqueue / best bulk API of a peer", BULK, best_peer("enqueue", cases=("bulk",)), 5),
]
WAITING_GOALS = [
    _at_most("P6", "idle latency p50, ms", median("latency", "publishing sender", "p50_ms"), 1.2),
    _at_most("P6", "idle latency p99, ms", median("latency", "publishing sender", "p99_ms"), 3),
    _at_most("P6", "silent senders in traffic p50, ms", median("latency", "silent senders, in traffic", "p50_ms"), 10),
    _at_most("P6", "silent senders in traffic p99, ms", median("latency", "silent senders, in traffic", "p99_ms"), 25),
    _at_most("P6", "silent sender, idle: max, ms", median("latency", "silent sender, idle", "max_ms"), 1000),
    _at_most("P7", "idle, 1 queue: % of a core", median("idle", "1 queues", "cpu_percent"), 1),
]
SERVER_GOALS = [
    _at_most("P8", "server us of a life in batches", over_all(sum, SERVER_TIMES), 7),
    _at_most("P8", "server us of a life one at a time", median("server", "one at a time", "life_server_us"), 45),
]
OTHER_GOALS = [
    Goal(number="P9", text="admin pages at 1M messages, ms", at_most=50, missing=MEASURED_APART),
    _at_most("P10", "bytes of a waiting message", median("memory", "47-byte message", "waiting_bytes"), 300),
    _at_most("P10", "bytes of a received message", median("memory", "47-byte message", "received_bytes"), 540),
    _at_least("P11", "appendonly everysec / without", median("appendonly", "everysec", "kept"), 0.75),
    _at_most("P12", "kill -9: tasks lost", over_all(sum, LOST), 0),
    _at_most("P12", "kill -9: tasks repeated per kill", over_all(max, REPEATED), 200),
    _at_most("P12", "the same with ack='each'", median("crash", ACK_EACH, "repeated_per_kill"), 8),
    _at_most(
        "P13", "makespan of 10 ms tasks over ideal", median("makespan", "2 processes of 8 threads", "over_ideal"), 0.10
    ),
]
RELIABLE_GOALS = [
    _at_least("R1", "reliable push / send_many, 100 a call", _of_rates("reliable", "push", "send_many"), 1.2),
    _at_least(
        "R2",
        "reliable pop + ack / receive_many + delete_many",
        _of_rates("reliable", "pop + ack", "receive_many + delete_many"),
        0.6,
    ),
    _at_most("R3", "blocked reader woken p50, ms", median("reliable", "blocked reader", "p50_ms"), 1),
]
TOPIC_GOALS = [
    _at_least("T1", "topic publish / send_many, 100 a call", _of_rates("topics", "publish", "send_many"), 1.0),
    _at_least(
        "T2",
        "topic read at most once / send_many, 100 a call",
        _of_rates("topics", "read at most once", "send_many"),
        2.0,
    ),
    _at_most(
        "T3", "slowest of 3 blocked groups woken p99, ms", median("topics", "slowest of 3 blocked groups", "p99_ms"), 10
    ),
]


# -- The next goals: ratios of one run --------------------------------------------------------------------------------

DEFAULTS = median("drain", "default options", "rate")
IN_A_REQUEST = median("enqueue", "in a web request", "sender_us")
LATENCY = "publishing sender"
DRAIN_RATIOS = (("1 thread", 0.60, 0.9), ("8 threads", 0.50, 1.1), ("asyncio", 0.40, 1.5))
NEXT_GOALS = [
    *(
        _at_least("Q1", f"drain, {case} / L_cycle", ratio("drain", case, "L_cycle"), bound)
        for case, bound, _ in DRAIN_RATIOS
    ),
    _at_least("Q1", "drain, 1 thread / L_cycle, least round", least_ratio("drain", "1 thread", "L_cycle"), 0.45),
    _at_least("Q1", "drain, default options / L_cycle", ratio("drain", "default options", "L_cycle"), 0.70),
    *(
        _at_most(
            "Q1",
            f"drain, {case}: worker us x L_cycle, millions",
            divided(product("drain", case, "worker_us", "L_cycle"), lambda results: 1e6),
            bound,
        )
        for case, _, bound in DRAIN_RATIOS
    ),
    *(
        _times_peer("Q2", f"drain, a process for each core / {text}", DEFAULTS, peer, bound)
        for text, peer, bound in (
            ("best Python peer", best_peer("drain", but=NODE, has_several=True), 20),
            ("BullMQ", best_peer("drain", only=("BullMQ",), has_several=True), 5),
            ("Celery solo", best_peer("drain", only=("Celery",), has_several=True), 70),
        )
    ),
    _at_most(
        "Q3",
        "enqueue one by one: sender us / the C client's",
        divided(median("enqueue", "one", "sender_us"), of_client("send1_client_us")),
        3.2,
    ),
    _times_peer("Q3", "enqueue one by one / best peer", ONE_BY_ONE, SENDERS, 1.2),
    _at_most("Q3", "enqueue in a web request: sender us", IN_A_REQUEST, 60),
    _at_most_peer(
        "Q3",
        "enqueue in a web request: sender us / Huey's",
        IN_A_REQUEST,
        of_peer("enqueue", "Huey", "in a web request", "sender_us"),
        1.0,
    ),
    _at_least("Q4", "bulk enqueue / L_send", ratio("enqueue", "bulk", "L_send"), 0.50),
    _at_least("Q4", "enqueue in one transaction / L_send", ratio("enqueue", "one transaction", "L_send"), 0.35),
    *(
        _at_most_peer(
            "Q5",
            f"{text} / Huey's",
            median("latency", LATENCY, value),
            of_peer("latency", "Huey", LATENCY, value),
            bound,
        )
        for text, value, bound in (
            ("idle latency p50", "p50_ms", 1.0),
            ("idle latency p99", "p99_ms", 1.0),
            ("processor time at 50 tasks a second", "worker_percent", 1.3),
        )
    ),
    _at_most(
        "Q6",
        "server us of a life in batches / shortest scripts",
        divided(over_all(sum, SERVER_TIMES), of_client("send_server_us", "cycle_server_us")),
        1.10,
    ),
    _at_most(
        "Q6",
        "server us of a life one at a time / shortest scripts",
        divided(median("server", "one at a time", "life_server_us"), of_client("send1_server_us", "cycle1_server_us")),
        1.10,
    ),
    _at_least(
        "Q7",
        "drain, 8 threads: results kept / without",
        _of_rates("drain", "8 threads, results kept", "8 threads"),
        0.85,
    ),
    *(
        Goal(
            number="Q8",
            text=f"plain task, {what}: instructions beside an unused feature / without, most",
            read=most_beside_features(value),
            at_most=bound,
            missing=NEEDS_VALGRIND,
        )
        # Of sends, one more draw of random suffixes may be counted in a row: that is 3 %.
        for what, value, bound in (("sent", "plain_send", 1.04), ("run", "plain_work", 1.01))
    ),
    *(
        Goal(
            number="Q9",
            text=f"{source}: instructions of a worker / queue's",
            read=divided(median("instructions", source, "work"), median("instructions", WITHOUT, "plain_work")),
            at_most=1.1,
            missing=NEEDS_VALGRIND,
        )
        for source in ("reliable queue", "topic")
    ),
]


def goals(results: Results) -> list[Goal]:
    """Return all goals; those about sizes are for the sizes of this run."""
    depths = [row[2] for row in results.rows() if row[0] == "backlog"]
    queues = [row[2] for row in results.rows() if row[0] == "queues"]
    most, one = (queues[-1], queues[0]) if queues else ("1,000 queues", "1 queues")
    rates = over_all(min, (median("backlog", depth, "rate_of_c") for depth in depths))
    counts = over_all(max, (median("backlog", depth, "count_ms") for depth in depths))
    sized = [
        _at_most("P7", f"idle, {most}: % of a core", median("idle", most, "cpu_percent"), 3),
        _at_least("P9", f"drain with {', '.join(depths)} / L_cycle there, least", rates, 0.40),
        _at_most("P9", "attributes of a long queue, ms", counts, 50),
        _at_least("P14", f"drain of {most} / one queue", _of_rates("queues", most, one), 0.5),
        _at_most("P14", f"scan of {most}, empty, ms", median("idle", most, "scan_ms"), 3),
    ]
    every = [*DRAIN_GOALS, *ENQUEUE_GOALS, *WAITING_GOALS, *SERVER_GOALS, *OTHER_GOALS, *sized]
    every.sort(key=lambda goal: int(goal.number[1:]))
    return [*every, *RELIABLE_GOALS, *TOPIC_GOALS, *NEXT_GOALS]
