"""The unreliable service fails in a predictable way."""

from collections import Counter

import pytest

from example_project.flightboard.gates import GateServiceDown, ask_for_gate, failures_before_success

FLIGHTS = [f"UA{number} 2013-01-01" for number in range(1, 5000)]


def test_a_flight_fails_as_often_as_announced_and_then_gets_its_gate() -> None:
    flight = next(flight for flight in FLIGHTS if failures_before_success(flight) == 2)

    for call in (1, 2):
        with pytest.raises(GateServiceDown, match=flight):
            ask_for_gate(flight, "EWR", call=call)

    assert ask_for_gate(flight, "EWR", call=3) == ask_for_gate(flight, "EWR", call=4)


def test_about_one_flight_in_twelve_fails() -> None:
    count = Counter(map(failures_before_success, FLIGHTS))

    assert 0.06 < (count[1] + count[2]) / len(FLIGHTS) < 0.11
    assert 0 < count[2] < count[1]


@pytest.mark.parametrize(("origin", "concourses"), [("EWR", "ABC"), ("JFK", "BDTX"), ("LGA", "ABCD")])
def test_gates_exist_at_their_airport(origin: str, concourses: str) -> None:
    gates = {ask_for_gate(flight, origin, call=3) for flight in FLIGHTS}

    assert {gate[0] for gate in gates} == set(concourses)
    assert {int(gate[1:]) for gate in gates} == set(range(1, 33))
