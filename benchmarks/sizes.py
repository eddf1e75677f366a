"""How much is measured: enough to see whether it works, to compare two versions while coding, or to publish."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The size of each measurement."""

    name: str
    rounds: int
    #: About how long each drain takes.
    drain_s: float
    reference_messages: int
    sends: int
    bulk_sends: int
    #: Of a Django site, with a call of the sender; as many are made without one.
    requests: int
    latencies: int
    #: How often a message of a sender that does not publish is waited for; each takes up to a second.
    silent_latencies: int
    #: Long enough that the next message is sent when the worker idles again.
    silent_gap_s: float
    idle_s: float
    many_queues: int
    backlogs: tuple[int, ...]
    memory_messages: int
    crash_tasks: int
    crash_every_s: float
    makespan_tasks: int
    #: Whose instructions are counted; none means all.
    features: tuple[str, ...] = ()


#: One that a task can use or not, and the other sources of work: counting all takes some minutes.
FEW_FEATURES = ("none of them", "tags", "reliable queue", "topic")
TINY = Sizes(
    name="tiny",
    rounds=1,
    drain_s=0.02,
    reference_messages=2000,
    sends=50,
    bulk_sends=1000,
    requests=20,
    latencies=5,
    silent_latencies=2,
    silent_gap_s=0.1,
    idle_s=1.2,
    many_queues=20,
    backlogs=(1000,),
    memory_messages=1000,
    crash_tasks=500,
    crash_every_s=0.05,
    makespan_tasks=32,
    features=FEW_FEATURES,
)
QUICK = Sizes(
    name="quick",
    rounds=1,
    drain_s=0.7,
    reference_messages=50_000,
    sends=2_000,
    bulk_sends=20_000,
    requests=1_000,
    latencies=100,
    silent_latencies=5,
    silent_gap_s=1.5,
    idle_s=3.0,
    many_queues=1000,
    backlogs=(10_000, 100_000),
    memory_messages=100_000,
    crash_tasks=10_000,
    crash_every_s=0.3,
    makespan_tasks=800,
    features=FEW_FEATURES,
)
FULL = Sizes(
    name="full",
    rounds=5,
    drain_s=4.0,
    reference_messages=200_000,
    sends=20_000,
    bulk_sends=100_000,
    requests=5_000,
    latencies=500,
    silent_latencies=20,
    silent_gap_s=1.5,
    idle_s=10.0,
    many_queues=1000,
    backlogs=(10_000, 100_000, 1_000_000, 2_000_000),
    memory_messages=100_000,
    crash_tasks=50_000,
    crash_every_s=0.3,
    makespan_tasks=3200,
)
ALL_SIZES = {sizes.name: sizes for sizes in (TINY, QUICK, FULL)}
