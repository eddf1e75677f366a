"""CREDENTIAL_PROVIDER and OPTIONS of a connection: what the settings accept, and the connection they give."""

from typing import Any

import pytest
from redis.credentials import UsernamePasswordCredentialProvider

from rsmq_django.checks import check_project
from rsmq_django.core.errors import RsmqError
from rsmq_django.pipeline.config import job_config
from rsmq_django.queues import get_client
from rsmq_django.spark.options import Options

PROVIDER = f"{__name__}.provide"


def provide() -> UsernamePasswordCredentialProvider:
    """A factory of credential providers."""
    return UsernamePasswordCredentialProvider("ann", "pa55")


class Broken:
    def __init__(self) -> None:
        raise OSError("no metadata service")


def configure(settings: Any, **options: Any) -> None:
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:1/0"} | options}}


def problems() -> list[tuple[str | None, str]]:
    return [(problem.id, problem.msg) for problem in check_project(None) if problem.id != "rsmq.W006"]


@pytest.mark.parametrize("given", [PROVIDER, provide, provide(), None])
def test_provider_is_accepted_in_every_form(settings, given):
    configure(settings, CREDENTIAL_PROVIDER=given)

    assert problems() == []
    assert (get_client().connection.credential_provider is None) == (given is None)


@pytest.mark.parametrize("given", ["nowhere.Provider", f"{__name__}.Missing", f"{__name__}.Broken", "builtins.dict"])
def test_provider_that_cannot_be_created_is_a_problem(settings, given):
    configure(settings, CREDENTIAL_PROVIDER=given)

    ((number, text),) = problems()

    assert number == "rsmq.E016" and given in text and "'default'" in text


@pytest.mark.parametrize("given", [7, "", ["a.b"]])
def test_provider_of_a_wrong_type_is_a_problem(settings, given):
    configure(settings, CREDENTIAL_PROVIDER=given)

    assert [number for number, _ in problems()] == ["rsmq.E003"]


@pytest.mark.parametrize("more", [{"URL": "redis://ann:s3cret@localhost"}, {"OPTIONS": {"password": "s3cret"}}])
def test_provider_besides_a_password_is_a_problem_that_shows_no_password(settings, more):
    configure(settings, CREDENTIAL_PROVIDER=PROVIDER, **more)

    ((number, text),) = problems()

    assert number == "rsmq.E016" and "s3cret" not in text


def test_options_are_added_to_the_address(settings):
    options = {"username": "ann", "password": "p/w", "ssl_certfile": "/etc/a b.pem", "ssl_check_hostname": False}
    configure(settings, URL="rediss://cache:6380/2", OPTIONS=options)

    assert problems() == []
    query = "ssl_certfile=%2Fetc%2Fa+b.pem&ssl_check_hostname=False"
    assert get_client().connection.url == f"rediss://ann:p%2Fw@cache:6380/2?{query}"


def test_unknown_option_is_a_problem_with_the_known_ones(settings):
    configure(settings, OPTIONS={"socket_timeout": 3})

    (problem,) = [problem for problem in check_project(None) if problem.id == "rsmq.E003"]

    assert "ssl_certfile" in str(problem.hint)


@pytest.mark.parametrize("given", [PROVIDER, provide])
def test_pipeline_passes_the_provider_by_name(settings, given, tmp_path, monkeypatch):
    configure(settings, CREDENTIAL_PROVIDER=given)
    monkeypatch.setenv("RSMQ_REDIS_URL", "redis://localhost:1/0")

    server = Options.read(job_config(lake=str(tmp_path)).options()).server()

    assert isinstance(server.client.connection.credential_provider, UsernamePasswordCredentialProvider)


def test_pipeline_refuses_a_provider_without_a_name(settings, tmp_path):
    configure(settings, CREDENTIAL_PROVIDER=provide())

    with pytest.raises(Exception, match="dotted path") as error:
        job_config(lake=str(tmp_path))
    assert not isinstance(error.value, RsmqError)
