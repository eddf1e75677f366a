"""Depths are added up over queues, and over time."""

from rsmq_django.core.stats.depth import Depth, peak, together

LONG = Depth(ready=5, hidden=3, in_flight=1, dead=2, oldest_ready_s=7.5, total_sent=20, total_received=9)


def test_depths_of_several_queues_are_their_sums_and_the_greatest_age():
    short = Depth(ready=1, hidden=2, in_flight=2, is_estimated=True, total_sent=3, total_received=2)

    every = together([LONG, short])

    assert (every.messages, every.ready, every.delayed, every.in_flight, every.dead) == (11, 6, 2, 3, 2)
    assert (every.oldest_ready_s, every.total_sent, every.total_received, every.is_estimated) == (7.5, 23, 11, True)
    assert together([]) == Depth(in_flight=0)


def test_sum_with_a_queue_whose_messages_in_flight_were_not_read_does_not_know_them():
    every = together([LONG, Depth(ready=1, hidden=2)])

    assert (every.hidden, every.in_flight, every.delayed) == (5, None, None)


def test_peak_of_a_span_has_the_largest_numbers_and_the_last_totals():
    later = Depth(ready=1, hidden=9, oldest_ready_s=2.0, total_sent=30, total_received=29)

    most = peak(LONG, later)

    assert (most.ready, most.messages, most.oldest_ready_s) == (5, 10, 7.5)
    assert (most.total_sent, most.total_received) == (30, 29)
    assert peak(Depth(), later) == later
