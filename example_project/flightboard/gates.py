"""The gate service: a stand-in for the slow, unreliable system next door that every airport has.

Which calls fail is decided by the flight itself, so that two replays of a day see the same failures: one flight in
twelve is refused once, one in a hundred and twenty twice. Knows nothing of tasks.
"""

import zlib

CONCOURSES = {"EWR": "ABC", "JFK": "BDTX", "LGA": "ABCD"}
GATES_PER_CONCOURSE = 32
ONE_IN_FAILS_ONCE = 12
ONE_IN_FAILS_TWICE = 120


class GateServiceDown(ConnectionError):
    """The service did not answer. It usually does a moment later."""


def failures_before_success(flight: str) -> int:
    """Return how many calls about this flight fail before one succeeds."""
    luck = zlib.crc32(flight.encode())
    if luck % ONE_IN_FAILS_TWICE == 0:
        return 2
    return 1 if luck % ONE_IN_FAILS_ONCE == 0 else 0


def ask_for_gate(flight: str, origin: str, *, call: int) -> str:
    """Return a gate such as "C12". `call` counts the calls for this flight from 1. Raises GateServiceDown."""
    if call <= failures_before_success(flight):
        raise GateServiceDown(f"no answer about {flight} on call {call}; ask again in a second")
    place = zlib.crc32(f"{origin} {flight}".encode())
    concourses = CONCOURSES[origin]
    return f"{concourses[place % len(concourses)]}{place // 7 % GATES_PER_CONCOURSE + 1}"
