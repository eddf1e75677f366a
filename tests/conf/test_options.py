"""Options: the nearest right spelling, ranges, and no password in any text."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django.conf.options import Problem
from rsmq_django.conf.settings import SECTIONS, read_settings

SERVER = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}
CANARY = "c4n4ry"


def with_queues(**queues: object) -> dict[str, object]:
    return {**SERVER, "QUEUES": queues}


def problems_of(value: object) -> list[Problem]:
    return read_settings(value)[1]


def the_problem(value: object) -> Problem:
    (problem,) = problems_of(value)
    return problem


@pytest.mark.parametrize(
    ("value", "unknown", "meant"),
    [
        ({**SERVER, "QEUES": {}}, "QEUES", "QUEUES"),
        ({"CONNECTIONS": {"default": {"URL": "redis://h", "NAMESPCE": "x"}}}, "NAMESPCE", "NAMESPACE"),
        (with_queues(mail={"VISIBILITY_TIMEOUT": 30}), "VISIBILITY_TIMEOUT", "VISIBILITY_TIMEOUT_S"),
        (with_queues(mail={"visibility_timeout_s": 30}), "visibility_timeout_s", "VISIBILITY_TIMEOUT_S"),
        ({**SERVER, "TASKS": {"RESULT_TTL": 5}}, "RESULT_TTL", "RESULT_TTL_S"),
        ({**SERVER, "WORKER": {"THREAD": 5}}, "THREAD", "THREADS"),
        ({**SERVER, "ADMIN": {"PAGESIZE": 5}}, "PAGESIZE", "PAGE_SIZE"),
    ],
)
def test_an_unknown_option_gets_the_nearest_right_spelling(value: object, unknown: str, meant: str):
    problem = the_problem(value)

    assert problem.id == "rsmq.E002"
    assert repr(unknown) in problem.message
    assert problem.hint == f"Did you mean {meant!r}?"


@pytest.mark.parametrize("word", ["LOCATION", "HOST", "port", "DB", "PASSWORD", "USERNAME"])
def test_parts_of_an_address_lead_to_the_url(word: str):
    problem = the_problem({"CONNECTIONS": {"default": {"URL": "redis://h", word: "x"}}})

    assert problem.hint == "It is a part of URL: redis://user:password@host:6379/0."


def test_an_option_that_resembles_nothing_gets_the_list_of_options():
    problem = the_problem({**SERVER, "WORKER": {"Q": 1}})

    assert problem.hint.startswith("Choose one of 'ASYNC_TASKS',")


def test_fields_that_are_not_options_cannot_be_set():
    assert the_problem(with_queues(mail={"NAME": "other"})).id == "rsmq.E002"
    assert the_problem({"CONNECTIONS": {"default": {"URL": "redis://h", "ALIAS": "x"}}}).id == "rsmq.E002"


@pytest.mark.parametrize(
    "options",
    [
        {"VISIBILITY_TIMEOUT_S": -1},
        {"VISIBILITY_TIMEOUT_S": 10_000_000},
        {"VISIBILITY_TIMEOUT_S": 0.5},
        {"VISIBILITY_TIMEOUT_S": "30"},
        {"VISIBILITY_TIMEOUT_S": True},
        {"VISIBILITY_TIMEOUT_S": None},
        {"DELAY_S": 10_000_000},
        {"MAX_SIZE_BYTES": 1023},
        {"MAX_SIZE_BYTES": 65537},
        {"MAX_SIZE_BYTES": -2},
        {"MAX_ATTEMPTS": 0},
        {"DEAD_LETTER": "no spaces"},
        {"DEAD_LETTER": "rt"},
        {"CONNECTION": ""},
        {"SIGNING_KEYS": []},
        {"ENCRYPTION_KEYS": []},
    ],
)
def test_a_wrong_value_is_reported_with_its_place_and_the_allowed_values(options: dict[str, object]):
    ((key, _),) = options.items()

    problem = problems_of(with_queues(mail=options))[0]

    assert problem.id == "rsmq.E003"
    assert problem.message.startswith(f"RSMQ['QUEUES']['mail']['{key}'] is ")
    assert problem.hint.startswith("It must be ")


@pytest.mark.parametrize(
    "options",
    [
        {"VISIBILITY_TIMEOUT_S": 0},
        {"VISIBILITY_TIMEOUT_S": 9_999_999},
        {"DELAY_S": 9_999_999},
        {"MAX_SIZE_BYTES": 1024},
        {"MAX_SIZE_BYTES": -1},
        {"MAX_ATTEMPTS": 1},
    ],
)
def test_the_ends_of_a_range_are_allowed(options: dict[str, object]):
    ((key, value),) = options.items()

    settings, problems = read_settings(with_queues(mail=options))

    assert problems == []
    assert getattr(settings.queue("mail"), key.lower()) == value


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("TASKS", {"RESULT_TTL_S": -1}),
        ("TASKS", {"ENQUEUE_ON_COMMIT": None}),
        ("TASKS", {"ENQUEUE_ON_COMMIT": ""}),
        ("WORKER", {"THREADS": 0}),
        ("WORKER", {"POLL_INTERVAL_S": float("nan")}),
        ("WORKER", {"POLL_INTERVAL_S": 0}),
        ("WORKER", {"POLL_INTERVAL_S": float("inf")}),
        ("WORKER", {"SHUTDOWN_TIMEOUT_S": -1}),
        ("ADMIN", {"PAGE_SIZE": 100_000}),
        ("ADMIN", {"REDACT": "password"}),
        ("ADMIN", {"REDACT": [""]}),
    ],
)
def test_wrong_values_are_found_in_every_section(section: str, options: dict[str, object]):
    assert the_problem({**SERVER, section: options}).id == "rsmq.E003"


@pytest.mark.parametrize("on_commit", [True, False, "replica"])
def test_enqueueing_waits_for_a_database_or_for_none(on_commit: bool | str):
    settings, problems = read_settings({**SERVER, "TASKS": {"ENQUEUE_ON_COMMIT": on_commit}})

    assert problems == []
    assert settings.tasks.enqueue_on_commit == on_commit


# -- Secrets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{CANARY}@host:6379/0",
        f"rediss://:{CANARY}@host",
        f"redis://:{CANARY}/x@host",
        f"redis://:{CANARY}#x@host",
        f"redis://:1/{CANARY}@host",
        f"redis://[{CANARY}@host",
        f"redis://u:{CANARY}@host:port",
        f"http://u:{CANARY}@host",
        f"unix://u:{CANARY}@/socket",
    ],
)
def test_a_password_appears_in_no_repr_and_no_problem(url: str):
    settings, problems = read_settings({"CONNECTIONS": {"default": {"URL": url}}})

    assert CANARY not in repr(settings)
    assert CANARY not in repr(problems)


@pytest.mark.parametrize(
    "value",
    [
        {"CONNECTIONS": f"redis://u:{CANARY}@host"},
        {"CONNECTIONS": {"default": f"redis://u:{CANARY}@host"}},
        {"CONNECTIONS": {"default": {"NAMESPACE": f"redis://u:{CANARY}@host:", "URL": "redis://h"}}},
        with_queues(mail={"DELAY_S": f"redis://u:{CANARY}@host"}),
        with_queues(mail={"DELAY_S": f"redis://host?password={CANARY}&db=1"}),
        with_queues(mail={f"redis://u:{CANARY}@host": 1}),
        with_queues(mail={"CONNECTION": f"redis://u:{CANARY}@host"}),
        {**SERVER, "WORKER": {"THREADS": {"URL": f"redis://u:{CANARY}@host"}}},
    ],
)
def test_a_url_in_the_wrong_place_shows_no_password_either(value: object):
    settings, problems = read_settings(value)

    assert problems
    assert CANARY not in repr(problems)


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379/0",
        "rediss://user:p%2Fw@host:6380/1?ssl_ca_certs=/ca.pem",
        "unix:///run/redis.sock?db=2",
        "redis://[::1]:6379",
        "redis://host/0?username=ann&password=p@ss",
    ],
)
def test_every_kind_of_address_is_understood(url: str):
    settings, problems = read_settings({"CONNECTIONS": {"default": {"URL": url}}})

    assert problems == []
    assert settings.connection("default").url == url


NO_SCHEME = "it does not begin with redis://, rediss://, unix:// or redis+sentinel://"
NO_DATABASE = "the part after host and port is not the number of a database"
UNREADABLE = "its port, or another part, cannot be read"
NOT_ENCODED = "it has a # or ? that is not percent-encoded"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", NO_SCHEME),
        ("localhost:6379", NO_SCHEME),
        ("http://localhost", NO_SCHEME),
        ("s3cret:6379", NO_SCHEME),
        ("redis://", "it has no host"),
        ("redis:///0", "it has no host"),
        ("redis:/localhost:6379", "it has no host"),
        ("redis://host:0", "its port is not a number from 1 to 65535"),
        ("redis://host:66000", UNREADABLE),
        ("redis://host:s3cret", UNREADABLE),
        ("redis://host/zero", NO_DATABASE),
        ("redis://:1/rest-of-a-s3cret@host", "it has no host"),
        ("redis://ann:1/rest-of-a-s3cret@host", NO_DATABASE),
        ("redis://ann:1#rest-of-a-s3cret@host:6379/0", NOT_ENCODED),
        ("redis://ann:1?rest-of-a-s3cret@host:6379/0", NOT_ENCODED),
        ("redis://host/0?db=zero", UNREADABLE),
        ("redis://host/0?pasword=s3cret", UNREADABLE),
        ("rediss://host/0?ssl_cert_reqs=s3cret", UNREADABLE),
        ("rediss+sentinel://s1,s2/mymaster/0?ssl_cert_reqs=s3cret", UNREADABLE),
        ("unix://", "it has no path of a socket"),
        ("redis+sentinel://s3cret", UNREADABLE),
        (b"redis://host", "it is not a text"),
    ],
)
def test_an_address_that_redis_would_not_understand_is_refused_with_the_part_that_is_wrong(url: object, fault: str):
    (problem,) = problems_of({"CONNECTIONS": {"default": {"URL": url}}})

    assert problem.id == "rsmq.E003"
    assert problem.message == f"RSMQ['CONNECTIONS']['default']['URL'] is invalid: {fault}"
    assert problem.hint.startswith("It must be a URL: redis://user:password@host:6379/0, ")


def test_a_list_becomes_a_tuple_because_settings_are_frozen():
    settings, problems = read_settings({**SERVER, "ADMIN": {"REDACT": ["pin"]}})

    assert problems == []
    assert settings.admin.redact == ("pin",)


# -- Anything ------------------------------------------------------------------------------------------------

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


# Building the first value takes a second: Hypothesis makes its table of characters.
@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(SECTIONS),
        json_like | st.dictionaries(st.text() | st.sampled_from(["default", "mail"]), json_like),
    )
)
def test_no_value_makes_reading_fail(value: object):
    read, problems = read_settings(value)

    assert problems or read.connections
