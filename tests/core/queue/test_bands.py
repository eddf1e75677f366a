"""Priority bands and lanes: the queue for a priority and a lane."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.queue.bands import HIGHEST, LOWEST, MOST_LANES, band_name, bands_of, lane_of, split_band

priorities = st.integers(LOWEST, HIGHEST)
lanes = st.none() | st.integers(0, MOST_LANES - 1)


OTHER_NAMES = [
    *["mail", "mail-dead", "mail-p0", "mail-p101", "mail-p050", "mail-P5", "-p5", "p5", "a\nb"],
    *["mail-lane64", "mail-lane03", "mail-lane", "mail-lane-1", "-lane3", "lane3"],
]


@given(priorities, lanes)
def test_name_of_a_band_contains_queue_priority_and_lane(priority, lane):
    name = band_name("mail", priority, lane)

    assert (*split_band(name), lane_of(name)) == ("mail", priority, lane)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_queues_of_their_own(name):
    assert (*split_band(name), lane_of(name)) == (name, 0, None)


@pytest.mark.parametrize("priority", [101, -101, 1.0, True, "5", None])
def test_priority_outside_the_range_is_refused(priority):
    with pytest.raises(InvalidValue, match="whole number from -100 to 100"):
        band_name("mail", priority)


def test_lanes_come_in_order_behind_their_priority():
    names = ["mail-lane10", "mail-m1", "mail-p5-lane2", "mail-p5", "mail-lane9", "mail-p6-lane0", "mails-lane1"]

    found = bands_of("mail", names)

    assert found == ["mail-p6-lane0", "mail-p5", "mail-p5-lane2", "mail", "mail-lane9", "mail-lane10", "mail-m1"]


@given(st.sets(priorities))
def test_bands_come_highest_first_and_the_queue_itself_is_among_them(wanted):
    names = {band_name("mail", priority) for priority in wanted} | {"mails-p7", "other", "mail-dead"}

    found = [split_band(name) for name in bands_of("mail", names)]

    assert found == [("mail", priority) for priority in sorted(wanted | {0}, reverse=True)]
