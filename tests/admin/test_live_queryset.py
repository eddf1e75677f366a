"""The QuerySet of the pages: supported queries read Redis, and queries that need SQL are refused."""

import io
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import FieldDoesNotExist, FieldError
from django.core.management import call_command
from django.db import NotSupportedError, connection, models
from django.db.models import Count, F, Q, QuerySet

from rsmq_django.core import Queue as CoreQueue
from rsmq_django.live.queryset import SQL_ONLY, LiveQuerySet
from rsmq_django.models import Message, Queue, Result, Worker
from tests.redis_server import PrivateServer

MODELS = [Queue, Message, Worker, Result]
#: What a QuerySet does without asking a database itself: it ends in methods that are replaced or refused.
HARMLESS = {"as_manager", "query", "db", "resolve_expression"}


def test_everything_public_is_replaced_or_refused(mail: CoreQueue):
    """A method that a new Django adds fails here until somebody has thought about it."""
    own = {name for base in LiveQuerySet.__mro__ if base is not QuerySet for name in vars(base)}
    inherited = {name for name in vars(QuerySet) if not name.startswith("_")} - own - HARMLESS

    asynchronous = {name for name in inherited if name[1:] in own and name[0] == "a"}
    assert inherited - asynchronous - {"filter", "exclude", "fetch_mode"} == set()


@pytest.mark.parametrize("name", [name for name in SQL_ONLY if hasattr(QuerySet, name)] + ["delete"])
@pytest.mark.parametrize("model", MODELS)
def test_query_that_needs_sql_is_refused(model: type[models.Model], name: str):
    with pytest.raises(NotSupportedError, match="lives in Redis"):
        getattr(model._default_manager.all(), name)()


def test_rows_are_neither_saved_nor_deleted(mail: CoreQueue):
    queue = Queue.objects.get(name="mail")
    for change in (queue.save, queue.delete):
        with pytest.raises(NotSupportedError):
            change()
    with pytest.raises(NotSupportedError):
        Message.objects.create(queue="mail")
    assert mail.attributes().messages == 0


def test_queues_are_filtered_ordered_and_cut(mail: CoreQueue, dead: CoreQueue):
    mail.send_many([b"x"] * 3)

    assert [queue.name for queue in Queue.objects.all()] == ["mail", "mail-dead"]
    assert [queue.name for queue in Queue.objects.order_by("-messages")] == ["mail", "mail-dead"]
    assert [queue.name for queue in Queue.objects.order_by("-name")[:1]] == ["mail-dead"]
    assert Queue.objects.filter(messages__gt=1).get().name == "mail"
    assert Queue.objects.exclude(name="mail").get().name == "mail-dead"
    assert Queue.objects.filter(Q(name="mail") | Q(messages=0)).count() == 2
    assert Queue.objects.filter(Q(name="mail") ^ Q(messages=0)).count() == 2
    assert Queue.objects.filter(name__in=["mail", "other"], name="mail-dead").count() == 0
    assert list(Queue.objects.values_list("name", flat=True).distinct().order_by()) == ["mail", "mail-dead"]
    assert Queue.objects.aggregate(n=Count("pk", filter=Q(messages=3))) == {"n": 1}
    assert set(Queue.objects.in_bulk(["mail"])) == {"mail"}
    assert Queue.objects.none().count() == 0 and not Queue.objects.none().exists()
    assert Queue.objects.first().name == "mail" and Queue.objects.last().name == "mail-dead"


def test_messages_are_cut_out_of_long_queues(mail: CoreQueue, server: PrivateServer):
    ids = mail.send_many([b"%d" % n for n in range(2500)])
    before = server.redis.info("commandstats")

    part = Message.objects.filter(queue="mail")[2000:2010]

    assert [message.message_id for message in part] == ids[2000:2010]
    assert part.count() == 10 and Message.objects.filter(queue="mail").count() == 2500
    assert Message.objects.filter(queue="mail", state="ready")[2499].message_id == ids[-1]
    assert Message.objects.filter(queue="mail").order_by("-visible_at").first().message_id == ids[-1]
    after = server.redis.info("commandstats")
    read = after["cmdstat_hmget"]["calls"] - before.get("cmdstat_hmget", {"calls": 0})["calls"]
    assert read < 60, "only what is shown is read, not the queue"


def test_chosen_messages_of_one_millisecond_are_in_the_order_of_their_ids(mail: CoreQueue, server: PrivateServer):
    ids = mail.send_many([b"x"] * 8)
    server.redis.zadd("rsmq:mail", dict.fromkeys(ids, 1_700_000_000_000))

    chosen = Message.objects.filter(pk__in=[f"mail/{message_id}" for message_id in reversed(ids)])

    assert [message.message_id for message in chosen] == ids


def test_rows_can_be_read_again(mail: CoreQueue):
    message = Message.objects.get(pk=f"mail/{mail.send(b'x')}")
    mail.receive()

    message.refresh_from_db()

    assert (message.state, message.receive_count) == ("in_flight", 1)
    mail.pop()
    mail.delete(message.message_id)
    with pytest.raises(Message.DoesNotExist):
        message.refresh_from_db()


def test_results_are_found_by_id(server: PrivateServer, mail: CoreQueue):
    server.redis.hset("rsmq::result:t1", mapping={"status": "FAILED", "queue": "mail", "worker:1": "w"})

    assert Result.objects.get(pk="t1").attempts == 1
    assert Result.objects.count() == 0, "there is no list of all of them"
    with pytest.raises(Result.DoesNotExist):
        Result.objects.get(pk="t2")


@pytest.mark.parametrize("bad", [{"name__regex": "x"}, {"name__year": 1}])
def test_lookups_that_redis_cannot_answer_are_refused_at_once(bad: dict[str, Any]):
    with pytest.raises(FieldError, match="Redis"):
        Queue.objects.filter(**bad)
    with pytest.raises(FieldError, match="Redis"):
        Queue.objects.order_by(F("name"))
    with pytest.raises(FieldDoesNotExist):
        Queue.objects.filter(colour="red")


# -- The rest of Django -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("rsmq",), ("rsmq", "--all")])
def test_dumpdata_exports_no_messages(mail: CoreQueue, arguments: tuple[str, ...]):
    mail.send(b"x")
    out = io.StringIO()

    call_command("dumpdata", *arguments, stdout=out)

    assert out.getvalue().strip() == "[]"


def test_migrations_are_complete_and_make_no_table():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)

    assert not {model._meta.db_table for model in MODELS} & set(connection.introspection.table_names())


def test_system_checks_have_nothing_to_say():
    call_command("check", fail_level="WARNING")


def test_permissions_exist_after_migrate():
    codenames = set(
        Permission.objects.filter(
            content_type__app_label="rsmq", content_type__model__in=["queue", "message", "worker", "result"]
        ).values_list("codename", flat=True)
    )

    assert codenames >= {
        "view_queue", "change_queue", "delete_queue", "send_message", "purge_queue", "pause_queue",
        "view_message", "view_body", "move_message", "redrive_message", "delete_message",
        "view_worker", "control_worker", "view_result",
    }  # fmt: skip
    assert not codenames & {"add_queue", "add_message", "change_message", "add_worker", "add_result"}
