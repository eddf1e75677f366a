"""Capacity advice: the number of slots (tasks that run at a time) that a queue needs for its target latency.

Assumes that messages arrive at random (Poisson) and that all work of the queue is of one class. The Erlang C formula
applies to exponential run times; for others the mean wait is (1 + CV^2) / 2 times as long, and its tail is assumed to
be stretched by the same factor. Compared with simulated queues it is exact up to CV^2 = 1, and never too low. Plain
Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: With fewer attempts, randomness dominates load.
LEAST_ATTEMPTS_PER_HOUR = 200
#: Hours whose mean run times differ by a larger factor are not one class of work.
MOST_RUN_TIME_SPREAD = 2.0
DEFAULT_QUANTILE = 0.95
DEFAULT_WAIT_TARGET_S = 5.0
#: Arrivals are counted in time slots of this length; advice is for the 95th percentile of them.
ARRIVAL_SLOT_S = 300
ARRIVAL_QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Demand:
    """The observed demand of a queue."""

    queue: str
    attempts: int
    arrivals_per_s: float
    mean_run_s: float
    #: Variance of the run times over the square of their mean; 0 is constant, 1 exponential.
    run_cv_squared: float
    attempts_per_hour: float
    #: Longest over shortest mean run time of an hour.
    run_time_spread: float
    #: Slots of the workers that ran at the same time.
    slots_seen: int
    #: The observed latency, at the quantile of the target; None without any.
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """The number of slots that a queue needs, with the inputs of the computation."""

    demand: Demand
    load: float
    #: None if there is no advice, for the given reason.
    slots_needed: int | None
    wait_target_s: float
    quantile: float
    silent_because: str = ""


def slots_needed(
    arrivals_per_s: float,
    mean_run_s: float,
    wait_target_s: float,
    *,
    quantile: float = DEFAULT_QUANTILE,
    run_cv_squared: float = 1.0,
    most: int = 10_000,
) -> int | None:
    """Return the minimum number of slots with which the given share of messages meets the target latency.

    None when more than `most` would be needed.
    """
    load = arrivals_per_s * mean_run_s
    if load <= 0:
        return 1
    stretch = (1 + run_cv_squared) / 2
    blocking = 1.0
    for slots in range(1, most + 1):
        blocking = load * blocking / (slots + load * blocking)  # Erlang B with one slot more
        if slots <= load:
            continue
        waits = blocking / (1 - load / slots * (1 - blocking))  # Erlang C
        if waits * math.exp(-(slots - load) * wait_target_s / (mean_run_s * stretch)) <= 1 - quantile:
            return slots
    return None


def advise(demand: Demand, *, wait_target_s: float, quantile: float = DEFAULT_QUANTILE) -> Advice:
    """Return advice for a queue, or the reason why there is none."""
    load = demand.arrivals_per_s * demand.mean_run_s
    reason = ""
    if demand.attempts_per_hour < LEAST_ATTEMPTS_PER_HOUR:
        reason = f"{demand.attempts_per_hour:.0f} attempts an hour; at least {LEAST_ATTEMPTS_PER_HOUR} are needed"
    elif demand.run_time_spread > MOST_RUN_TIME_SPREAD:
        reason = f"mean run times differ {demand.run_time_spread:.1f} fold between hours; this is not one class of work"
    if reason:
        return Advice(demand, load, None, wait_target_s, quantile, reason)
    needed = slots_needed(
        demand.arrivals_per_s,
        demand.mean_run_s,
        wait_target_s,
        quantile=quantile,
        run_cv_squared=demand.run_cv_squared,
    )
    if needed is None:
        reason = "more than 10,000 slots"
    elif demand.wait_s is not None and demand.wait_s > wait_target_s and demand.slots_seen >= needed:
        # The formula knows nothing of what holds these messages, so its number would be wrong.
        reason = (
            f"{quantile * 100:g} % of the messages waited up to {demand.wait_s:.1f} s, although there were enough "
            "slots: look for limits, pauses, idle workers, and other queues of these workers"
        )
        needed = None
    return Advice(demand, load, needed, wait_target_s, quantile, reason)


def arrival_rate_per_s(counts: Mapping[int, int], *, slots: int) -> float:
    """Return the busy arrival rate: the 95th percentile over time slots, including slots without arrivals."""
    if not slots:
        return 0.0
    ranked: Sequence[int] = sorted(counts.values())
    place = math.ceil(ARRIVAL_QUANTILE * slots) - 1 - (slots - len(ranked))
    return ranked[place] / ARRIVAL_SLOT_S if place >= 0 else 0.0
