"""An attacker who can write every key of the namespace, but has no key: schedules do not sign for him."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from rsmq_django import schedules
from rsmq_django.core.keys import schedule_keys
from rsmq_django.core.tasks.schedules import tick_id
from rsmq_django.tasks import every
from rsmq_django.tasks.schedule import UnsignedSchedule
from tests.redis_server import PrivateServer
from tests.tasks.schedules import (  # noqa: F401
    DUE,
    ENTRIES,
    STATE,
    let_pass,
    new_scheduler,
    own_declarations,
    sent_ids,
)
from tests.worker.workshop import Configure, declare, work

CHARGE = "tests.worker.test_attacks_on_schedules.charge"
SIGNED = {"SIGNING_KEYS": ["k" * 32]}
ENCRYPTED = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
FORGED = {"TASK": CHARGE, "EVERY_S": 1, "KWARGS": {"to": "ATTACKER"}}


@pytest.fixture(params=[SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def charged(request: pytest.FixtureRequest, configure: Configure) -> list[str]:
    """A task "charge" on the sealed queue "payments", and for whom it was called."""
    configure(payments=request.param, default={})
    return declare_charge()


def declare_charge() -> list[str]:
    called: list[str] = []

    @declare(queue_name="payments")
    def charge(to: str) -> None:
        called.append(to)

    return called


def plant(server: PrivateServer, name: str = "evil", definition: Any = FORGED) -> None:
    """Write a schedule that is due, as a program does that has no key."""
    server.redis.hset(ENTRIES, name, definition if isinstance(definition, str) else json.dumps(definition))
    server.redis.zadd(DUE, {name: 1_700_000_000_000})


def test_a_planted_entry_does_not_fire(charged: list[str], server: PrivateServer, caplog: pytest.LogCaptureFixture):
    plant(server)
    scheduler = new_scheduler()

    with caplog.at_level(logging.ERROR):
        scheduler.fire_due()
        scheduler.fire_due()
    work()

    assert (charged, sent_ids(server, "payments")) == ([], [])
    (said,) = [record.message for record in caplog.records if "evil" in record.message]
    assert "neither what the code declares nor signed" in said


@pytest.mark.parametrize("run", [schedules.run_now, async_to_sync(schedules.arun_now)], ids=["run_now", "arun_now"])
def test_a_planted_entry_cannot_be_run_by_hand(charged: list[str], server: PrivateServer, run: Callable[[str], object]):
    plant(server)

    with pytest.raises(UnsignedSchedule, match="evil"):
        run("evil")

    assert sent_ids(server, "payments") == []


def test_changing_a_planted_entry_does_not_sign_it(charged: list[str], server: PrivateServer):
    plant(server)

    with pytest.raises(UnsignedSchedule):
        schedules.change("evil", every_s=3600)

    assert b"SIGNATURE" not in server.redis.hget(ENTRIES, "evil")


def test_a_forged_entry_that_claims_to_be_declared_does_not_fire(charged: list[str], server: PrivateServer):
    plant(server)
    server.redis.hset(STATE, "owner:evil", "tests")

    new_scheduler().fire_due()

    assert sent_ids(server, "payments") == []


def test_declared_schedule_fires_without_a_signature(charged: list[str], server: PrivateServer):
    declared = declare(queue_name="payments")(lambda: charged.append("declared"))
    every(hours=1, name="declared")(declared)
    new_scheduler().fire_due()
    let_pass(server, "declared", seconds=3600)

    new_scheduler().fire_due()
    work()

    assert charged == ["declared"]
    assert b"SIGNATURE" not in server.redis.hget(ENTRIES, "declared")


def test_a_declared_name_with_other_arguments_does_not_fire(charged: list[str], server: PrivateServer):
    declared = declare(queue_name="payments")(lambda to="declared": charged.append(to))
    every(hours=1, name="declared")(declared)
    scheduler = new_scheduler()
    scheduler.fire_due()
    stored = json.loads(server.redis.hget(ENTRIES, "declared"))
    plant(server, "declared", stored | {"KWARGS": {"to": "ATTACKER"}})

    scheduler.fire_due()
    work()

    assert charged == []


def test_schedule_added_with_the_key_fires(charged: list[str], server: PrivateServer):
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    let_pass(server, "rent", seconds=3600)

    new_scheduler().fire_due()
    schedules.run_now("rent")
    schedules.change("rent", kwargs={"to": "new landlord"})
    schedules.run_now("rent")
    work()

    assert charged == ["landlord", "landlord", "new landlord"]


@pytest.mark.parametrize("change", [{"KWARGS": {"to": "ATTACKER"}}, {"EVERY_S": 1}, {"MISSED": "all"}], ids=str)
def test_a_signed_entry_that_was_changed_does_not_fire(
    charged: list[str], server: PrivateServer, change: dict[str, Any]
):
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    plant(server, "rent", json.loads(server.redis.hget(ENTRIES, "rent")) | change)

    new_scheduler().fire_due()

    assert sent_ids(server, "payments") == []


def test_a_signature_fits_no_other_name_and_no_other_namespace(
    charged: list[str], server: PrivateServer, settings: Any
):
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    definition = server.redis.hget(ENTRIES, "rent").decode()
    plant(server, "rent twice", definition)
    new_scheduler().fire_due()
    assert sent_ids(server, "payments") == []

    connection = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "production"}
    settings.RSMQ = settings.RSMQ | {"CONNECTIONS": {"default": connection}}
    server.redis.hset(schedule_keys("production")[1], "rent", definition)
    with pytest.raises(UnsignedSchedule):
        schedules.run_now("rent")


def test_a_signed_entry_outlives_the_rotation_of_the_key_until_the_old_one_is_removed(
    configure: Configure, server: PrivateServer
):
    configure(payments={"SIGNING_KEYS": ["o" * 32]})
    charged = declare_charge()
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    schedules.add("forgotten", CHARGE, every_s=3600, kwargs={"to": "nobody"})

    configure(payments={"SIGNING_KEYS": ["n" * 32, "o" * 32]})
    schedules.run_now("rent")
    schedules.change("rent")  # signs it anew
    configure(payments={"SIGNING_KEYS": ["n" * 32]})
    schedules.run_now("rent")
    with pytest.raises(UnsignedSchedule):
        schedules.run_now("forgotten")
    configure(payments={"SIGNING_KEYS": ["n" * 32, "o" * 32]})
    work()

    assert charged == ["landlord", "landlord"]


def test_the_ids_of_ticks_of_a_sealed_queue_cannot_be_computed_without_its_key(
    charged: list[str], server: PrivateServer
):
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    planned = let_pass(server, "rent", seconds=3600)

    new_scheduler().fire_due()

    (task_id,) = sent_ids(server, "payments")
    assert task_id != tick_id("rsmq", "rent", planned)
    server.redis.zadd(DUE, {"rent": planned})  # the server has forgotten that it fired: the same tick, the same id
    new_scheduler().fire_due()
    assert sent_ids(server, "payments") == [task_id, task_id]


def test_doctor_and_lists_show_planted_entries_and_nothing_else(charged: list[str], server: PrivateServer):
    schedules.add("rent", CHARGE, every_s=3600, kwargs={"to": "landlord"})
    plant(server)
    out = StringIO()

    with contextlib.suppress(CommandError):  # other findings may be errors
        call_command("rsmq_doctor", as_json=True, stdout=out)

    (report,) = json.loads(out.getvalue())["connections"]
    found = [one["subject"] for one in report["findings"] if one["id"] == "unsigned-schedule"]
    entries = {entry.name: entry for entry in schedules.entries()}
    assert found == ["evil"]
    assert entries["evil"].is_unsigned and "neither what the code declares" in entries["evil"].problem
    assert not entries["rent"].is_unsigned and not entries["rent"].problem


def test_an_entry_for_a_queue_without_keys_is_stored_without_signature(charged: list[str], server: PrivateServer):
    declare(lambda: charged.append("plain"))
    schedules.add("plain", CHARGE.replace("charge", "<lambda>"), every_s=3600)

    schedules.run_now("plain")
    work()

    assert charged == ["plain"]
    assert b"SIGNATURE" not in server.redis.hget(ENTRIES, "plain")
