"""Cron expressions in words, in English and German; expressions without exact words are shown unchanged."""

import pytest
from django.utils.translation import override

from rsmq_django.admin.cron_words import cron_in_words, words_of
from rsmq_django.conf.timetable import Cron, Every

ENGLISH = {
    "30 3 * * MON-FRI": "weekdays at 03:30",
    "30 3 * * 1-5": "weekdays at 03:30",
    "0 4 * * *": "daily at 04:00",
    "0 8,20 * * *": "daily at 08:00 and 20:00",
    "15 9 * * 6,0": "weekends at 09:15",
    "15 9 * * 7": "Sundays at 09:15",
    "15 9 * * MON,WED,SUN": "Mondays, Wednesdays and Sundays at 09:15",
    "0 0 1 * *": "on day 1 of each month at 00:00",
    "0 0 1,15 * *": "on days 1 and 15 of each month at 00:00",
    "0 0 L * *": "on the last day of each month at 00:00",
    "0 6 1 JAN,JUL *": "on day 1 of each month at 06:00, in January and July",
    "* * * * *": "every minute",
    "*/15 * * * *": "every 15 minutes",
    "*/15 8-17 * * MON-FRI": "every 15 minutes from 08:00 to 17:59, weekdays",
    "5 * * * *": "every hour at minute 5",
    "5 */6 * * *": "every 6 hours at minute 5",
    "0 30 3 * * *": "daily at 03:30",
    "*/10 * * * * *": "every 10 seconds",
    "* * * * * *": "every second",
}
#: Their words would not say what they do.
WITHOUT_WORDS = [
    "*/7 * * * *", "5 */5 * * *", "0 0 13 * FRI", "0 0 * * MON#1", "0 0 LW * *", "30 0 3 * * *", "*/5 8,12 * * *",
    "0 0-12 * * *", "0,30 * * * *", "1 2 3", "", "x x x x x", "60 3 * * *", "0 0 5-1 * *", "@daily", "٣ 3 * * *",
]  # fmt: skip


@pytest.mark.parametrize("expression", ENGLISH)
def test_common_expressions_are_described_in_words(expression: str):
    assert cron_in_words(expression) == ENGLISH[expression]


@pytest.mark.parametrize("expression", WITHOUT_WORDS)
def test_uncommon_expressions_have_no_words(expression: str):
    assert cron_in_words(expression) == ""


def test_words_name_the_zone():
    assert words_of(Cron("30 3 * * MON-FRI", "Europe/Berlin")) == "weekdays at 03:30, Europe/Berlin"
    assert words_of(Cron("0 0 13 * FRI", "UTC")) == "0 0 13 * FRI, UTC"
    assert words_of(Every(900_000)) == "every 15 min"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("30 3 * * MON-FRI", "montags bis freitags um 03:30 Uhr"),
        ("0 8,20 * * *", "täglich um 08:00 und 20:00 Uhr"),
        ("15 9 * * MON,WED", "montags und mittwochs um 09:15 Uhr"),
        ("0 6 1 JAN *", "am Tag 1 jedes Monats um 06:00 Uhr, im Januar"),
        ("*/15 8-17 * * 6,0", "alle 15 Minuten von 08:00 bis 17:59 Uhr, am Wochenende"),
        ("5 * * * *", "jede Stunde in Minute 5"),
    ],
)
def test_words_are_german_in_german(expression: str, words: str):
    with override("de"):
        assert cron_in_words(expression) == words
