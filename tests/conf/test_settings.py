"""settings.RSMQ: defaults, dependencies between options, and every problem at once."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.conf.options import Problem
from rsmq_django.conf.settings import get_settings, read_settings

SERVER = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}


def with_queues(**queues: object) -> dict[str, object]:
    return {**SERVER, "QUEUES": queues}


def problems_of(value: object) -> list[Problem]:
    return read_settings(value)[1]


def the_problem(value: object) -> Problem:
    (problem,) = problems_of(value)
    return problem


# -- Defaults ------------------------------------------------------------------------------------------------------


def test_an_address_is_all_that_a_project_must_give():
    settings, problems = read_settings(SERVER)

    assert problems == []
    assert settings.connections["default"].url == "redis://localhost:6379/0"
    assert settings.connections["default"].namespace == "rsmq"
    assert list(settings.queues) == ["default"]


def test_a_queue_has_the_attributes_that_rsmq_gives_it():
    settings, _ = read_settings(with_queues(mail={}))

    mail = settings.queue("mail")

    assert (mail.visibility_timeout_s, mail.delay_s, mail.max_size_bytes) == (30, 0, 65536)
    assert (mail.connection, mail.max_attempts, mail.dead_letter) == ("default", 5, "mail-dead")


def test_no_default_queue_appears_beside_queues_that_are_named():
    settings, _ = read_settings(with_queues(mail={}))

    assert list(settings.queues) == ["mail"]


def test_queues_keep_the_order_in_which_they_are_written():
    settings, _ = read_settings(with_queues(zebra={}, mail={}, ant={}))

    assert list(settings.queues) == ["zebra", "mail", "ant"]


def test_attempts_of_a_queue_default_to_those_of_the_tasks():
    settings, _ = read_settings({**with_queues(mail={}, slow={"MAX_ATTEMPTS": 2}), "TASKS": {"MAX_ATTEMPTS": 9}})

    assert settings.queue("mail").max_attempts == 9
    assert settings.queue("slow").max_attempts == 2


def test_a_dead_letter_queue_accepts_any_message_of_its_connection():
    given = with_queues(mail={"CONNECTION": "billing", "DELAY_S": 60})
    given["CONNECTIONS"] = {"billing": {"URL": "redis://billing"}}

    settings, problems = read_settings(given)

    assert problems == []
    dead = settings.queue("mail-dead")
    assert (dead.connection, dead.max_size_bytes, dead.delay_s) == ("billing", -1, 0)
    assert "mail-dead" not in settings.queues


def test_a_dead_letter_queue_keeps_its_times_in_the_unit_of_its_queue():
    settings, problems = read_settings(with_queues(mail={"VT_UNIT": "ms"}, other={}))

    assert problems == []
    assert (settings.queue("mail").vt_unit, settings.queue("mail-dead").vt_unit) == ("ms", "ms")
    assert (settings.queue("other").vt_unit, settings.queue("other-dead").vt_unit) == ("s", "s")


@pytest.mark.parametrize("unit", ["", "S", "seconds", None, 1000])
def test_a_unit_of_time_that_no_client_uses_is_refused(unit: object):
    problem = the_problem(with_queues(mail={"VT_UNIT": unit}))

    assert problem.id == "rsmq.E003"
    assert "'s' or 'ms'" in problem.hint


def test_a_dead_letter_queue_may_be_a_queue_of_the_project():
    settings, problems = read_settings(with_queues(mail={"DEAD_LETTER": "review"}, review={"MAX_ATTEMPTS": 1}))

    assert problems == []
    assert settings.queue("review").max_attempts == 1
    assert list(settings.dead_letters) == ["review-dead"]


def test_settings_cannot_be_changed():
    settings, _ = read_settings(SERVER)

    with pytest.raises(FrozenInstanceError):
        settings.queue("default").delay_s = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.queues["new"] = settings.queue("default")


@pytest.mark.parametrize("section", ["TASKS", "WORKER", "ADMIN"])
def test_an_empty_section_is_as_good_as_none(section: str):
    assert read_settings({**SERVER, section: {}}) == read_settings(SERVER)


# -- Problems ------------------------------------------------------------------------------------------------------


def test_missing_settings_are_reported_with_the_settings_to_add():
    problem = the_problem(None)

    assert problem.id == "rsmq.E001"
    assert 'RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}' in problem.hint


@pytest.mark.parametrize("value", ["redis://localhost", 5, [], True])
def test_settings_that_are_no_dictionary_are_one_problem(value: object):
    assert the_problem(value).id == "rsmq.E003"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x\n", "ä", "QUEUES", "rt", "x" * 161, 5])
def test_a_queue_name_that_rsmq_cannot_have_is_refused(name: object):
    problem = the_problem({**SERVER, "QUEUES": {name: {}}})

    assert problem.id == "rsmq.E004"
    assert repr(name)[:50] in problem.message


def test_a_queue_with_the_name_of_a_priority_band_is_refused():
    problem = the_problem({**SERVER, "QUEUES": {"mail": {}, "mail-p50": {}}})

    assert problem.id == "rsmq.E004"
    assert "priority 50 of 'mail'" in problem.message


@pytest.mark.parametrize("alias", ["", " ", None, 5])
def test_an_alias_that_is_not_a_text_is_refused(alias: object):
    problem = the_problem({"CONNECTIONS": {**SERVER["CONNECTIONS"], alias: {"URL": "redis://h"}}})

    assert problem.id == "rsmq.E004"


@pytest.mark.parametrize("namespace", ["", "rsmq:", "rs\0mq", None, 5])
def test_a_namespace_that_would_mix_up_keys_is_refused(namespace: object):
    problem = the_problem({"CONNECTIONS": {"default": {"URL": "redis://h", "NAMESPACE": namespace}}})

    assert problem.id == "rsmq.E003"
    assert problem.message.startswith("RSMQ['CONNECTIONS']['default']['NAMESPACE'] is ")


@pytest.mark.parametrize(
    "connection",
    [
        {},
        {"URL": None},
        {"EMBEDDED": False},
        {"URL": "redis://h", "CACHE": "default"},
        {"CACHE": "default", "EMBEDDED": True},
    ],
)
def test_a_connection_needs_exactly_one_server(connection: dict[str, object]):
    assert the_problem({"CONNECTIONS": {"default": connection}}).id == "rsmq.E005"


def test_a_location_that_is_none_or_false_does_not_count():
    given = {"CONNECTIONS": {"default": {"URL": "redis://h", "CACHE": None, "EMBEDDED": False}}}

    assert problems_of(given) == []


@pytest.mark.parametrize("value", [{}, {"CONNECTIONS": {}}, {"QUEUES": {"mail": {}}}])
def test_settings_without_a_connection_are_one_problem(value: object):
    assert the_problem(value).id == "rsmq.E005"


def test_a_queue_on_an_unknown_connection_is_refused():
    problem = the_problem(with_queues(mail={"CONNECTION": "defualt"}))

    assert problem.id == "rsmq.E006"
    assert problem.hint == "Did you mean 'default'?"


def test_a_queue_cannot_be_its_own_dead_letter_queue():
    problem = the_problem(with_queues(mail={"DEAD_LETTER": "mail"}))

    assert problem.id == "rsmq.E007"
    assert "mail -> mail" in problem.message


def test_dead_letters_cannot_go_round_in_a_circle():
    queues = {
        "a": {"DEAD_LETTER": "b"},
        "b": {"DEAD_LETTER": "c"},
        "c": {"DEAD_LETTER": "a"},
        "d": {"DEAD_LETTER": "a"},
    }

    problem = the_problem(with_queues(**queues))

    assert problem.id == "rsmq.E007"
    assert "a -> b -> c -> a" in problem.message


@pytest.mark.parametrize("dead", [{}, {"dead": {}}], ids=["implied", "listed"])
def test_a_dead_letter_queue_must_be_on_the_same_connection(dead: dict[str, object]):
    queues = {"mail": {"DEAD_LETTER": "dead"}, **dead, "bills": {"CONNECTION": "billing", "DEAD_LETTER": "dead"}}
    connections = {"default": {"URL": "redis://one"}, "billing": {"URL": "redis://two"}}

    problem = the_problem({"CONNECTIONS": connections, "QUEUES": queues})

    assert problem.id == "rsmq.E007"
    assert problem.message.startswith("RSMQ['QUEUES']['bills']['DEAD_LETTER']")


def test_a_queue_name_too_long_for_the_suffix_must_name_its_dead_letter_queue():
    name = "x" * 156

    assert the_problem(with_queues(**{name: {}})).id == "rsmq.E007"
    assert problems_of(with_queues(**{name: {"DEAD_LETTER": "dead"}})) == []


def test_all_problems_are_found_at_once():
    given = {
        "CONNECTIONS": {"default": {"URL": "http://h"}},
        "QUEUES": {"mail": {"DELAY_S": "5", "VT": 3}},
        "WORKERS": {},
    }

    ids = sorted(problem.id for problem in problems_of(given))

    assert ids == ["rsmq.E002", "rsmq.E002", "rsmq.E003", "rsmq.E003"]


# -- Lookups -------------------------------------------------------------------------------------------------------


def test_an_unknown_queue_gets_the_nearest_right_name():
    settings, _ = read_settings(with_queues(mail={}, invoices={}))

    with pytest.raises(
        ImproperlyConfigured, match=r"Queue 'mial' is not in RSMQ\['QUEUES'\], .* Did you mean 'mail'\?"
    ):
        settings.queue("mial")


def test_an_unknown_connection_gets_the_nearest_right_alias():
    settings, _ = read_settings(SERVER)

    with pytest.raises(ImproperlyConfigured, match=r"'defualt' .* Did you mean 'default'\?"):
        settings.connection("defualt")


# -- The project's settings ----------------------------------------------------------------------------------------


def test_settings_are_read_once(settings):
    settings.RSMQ = with_queues(mail={})

    assert get_settings() is get_settings()


def test_changed_settings_are_read_again(settings):
    settings.RSMQ = with_queues(mail={})
    before = get_settings()

    settings.RSMQ = with_queues(post={})

    assert list(before.queues) == ["mail"]
    assert list(get_settings().queues) == ["post"]


def test_wrong_settings_raise_one_error_that_lists_everything(settings):
    settings.RSMQ = with_queues(mail={"DELAY_S": "5", "VISIBILITY_TIMEOUT": 3})

    with pytest.raises(ImproperlyConfigured) as raised:
        get_settings()

    text = str(raised.value)
    assert "RSMQ['QUEUES']['mail']['DELAY_S'] is '5'. It must be whole seconds from 0 to 9999999." in text
    assert "Did you mean 'VISIBILITY_TIMEOUT_S'? (rsmq.E002)" in text


def test_missing_settings_raise_the_text_of_the_check(settings):
    del settings.RSMQ
    get_settings.cache_clear()  # deleting a setting tells nobody

    with pytest.raises(ImproperlyConfigured, match="The setting RSMQ is missing"):
        get_settings()


def test_the_embedded_server_keeps_its_data_beside_the_project(settings, monkeypatch):
    monkeypatch.delenv("RSMQ_STATE_DIR", raising=False)
    settings.BASE_DIR = Path("/project")

    settings.RSMQ = {"CONNECTIONS": {"default": {"EMBEDDED": True}}}

    assert get_settings().connection("default").state_dir == Path("/project/.rsmq")


def test_a_changed_base_directory_is_noticed(settings, monkeypatch):
    monkeypatch.delenv("RSMQ_STATE_DIR", raising=False)
    settings.RSMQ = {"CONNECTIONS": {"default": {"EMBEDDED": True}}}
    settings.BASE_DIR = Path("/project")
    before = get_settings().connection("default").state_dir

    settings.BASE_DIR = "/moved"

    assert (before, get_settings().connection("default").state_dir) == (Path("/project/.rsmq"), Path("/moved/.rsmq"))


def test_the_environment_can_move_the_data_of_the_embedded_server(settings, monkeypatch):
    monkeypatch.setenv("RSMQ_STATE_DIR", "/elsewhere")
    settings.BASE_DIR = Path("/project")

    settings.RSMQ = {"CONNECTIONS": {"default": {"EMBEDDED": True}}}

    assert get_settings().connection("default").state_dir == Path("/elsewhere")


def test_the_embedded_server_needs_a_place_for_its_data(settings, monkeypatch):
    monkeypatch.delenv("RSMQ_STATE_DIR", raising=False)
    settings.BASE_DIR = None

    problem = the_problem({"CONNECTIONS": {"default": {"EMBEDDED": True}}})

    assert problem.id == "rsmq.E005"
    assert "RSMQ_STATE_DIR" in problem.hint


def test_dead_letters_do_not_go_to_a_priority_band(settings):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://localhost"}},
        "QUEUES": {"mail": {"DEAD_LETTER": "mail-p50"}},
    }

    with pytest.raises(ImproperlyConfigured, match="'mail-p50', the queue for a priority or lane of 'mail'"):
        get_settings()
