"""Priority bands: which queue holds which priority."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core.bands import HIGHEST, LOWEST, band_name, bands_of, split_band
from rsmq_django.core.errors import InvalidValue

priorities = st.integers(LOWEST, HIGHEST)


@given(priorities)
def test_name_of_a_band_tells_queue_and_priority(priority):
    assert split_band(band_name("mail", priority)) == ("mail", priority)


@pytest.mark.parametrize("name", ["mail", "mail-dead", "mail-p0", "mail-p101", "mail-p050", "mail-P5", "-p5", "p5"])
def test_other_names_are_queues_of_their_own(name):
    assert split_band(name) == (name, 0)


@pytest.mark.parametrize("priority", [101, -101, 1.0, True, "5", None])
def test_priority_outside_the_range_is_refused(priority):
    with pytest.raises(InvalidValue, match="whole number from -100 to 100"):
        band_name("mail", priority)


@given(st.sets(priorities))
def test_bands_come_highest_first_and_the_queue_itself_is_among_them(wanted):
    names = {band_name("mail", priority) for priority in wanted} | {"mails-p7", "other", "mail-dead"}

    found = [split_band(name) for name in bands_of("mail", names)]

    assert found == [("mail", priority) for priority in sorted(wanted | {0}, reverse=True)]
