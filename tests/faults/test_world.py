"""What a world finds at the end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import world
from tests.faults.world import OlderWorld, SoakWorld
from tests.redis_server import PrivateServer
from tests.worker.processes import ROOT


def test_field_of_a_message_that_does_not_exist_is_found(server: PrivateServer):
    server.redis.zadd("rsmq:mail", {"a" * 32: 1})
    server.redis.hset("rsmq:mail:Q", mapping={"vt": 30, "a" * 32: "body", f"{'a' * 32}:rc": 1})
    server.redis.set("rsmq:other:Q", "no hash")
    run = server.redis.execute_command

    assert world._fields_without_a_message(run) == []
    server.redis.hset("rsmq:mail:Q", f"{'b' * 32}:rc", 1)
    assert world._fields_without_a_message(run) == [f"rsmq:mail:Q has fields of messages that do not exist: {'b' * 32}"]


def test_what_was_always_less_before_has_grown():
    soak = SoakWorld.__new__(SoakWorld)
    warm_up, early = [{"files of 1": 90}], [{"files of 1": count} for count in (8, 10, 9)]

    soak.lasts_s = 20.0
    soak.measured = [warm_up, early, [{"files of 1": 50}], [{"files of 1": 15}, {"files of 1": 13}]]
    assert soak.grown() == []
    soak.measured[-1] = [{"files of 1": 15}, {"files of 1": 14}]
    assert soak.grown() == ["files of 1: 4 more"]


def test_memory_may_grow_a_little():
    soak = SoakWorld.__new__(SoakWorld)
    soak.lasts_s = 1000.0
    soak.measured = [[], [{"memory of 1": 0}], [], [{"memory of 1": 2 << 20}]]
    assert soak.grown() == []
    soak.measured[-1] = [{"memory of 1": (2 << 20) + 1}]
    assert soak.grown() == ["memory of 1: 2,097,153 more"]


def test_process_that_was_replaced_is_a_finding():
    soak = SoakWorld.__new__(SoakWorld)
    soak.measured = [[], [{"files of 1": 8}], [], [{"files of 2": 8}]]

    assert soak.grown() == ["processes were replaced"]


def test_each_second_process_of_the_older_release_has_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if not OlderWorld.found_revision():
        pytest.skip("this needs the history of git")
    older = OlderWorld.__new__(OlderWorld)
    older.directory = tmp_path
    older.check_out()

    assert older.place_of("worker", 1) == tmp_path / "older"
    assert older.place_of("worker", 2) == ROOT
    assert (tmp_path / "older" / "rsmq_django" / "__init__.py").is_file()
    monkeypatch.setattr(OlderWorld, "revision", "no such revision")
    assert OlderWorld.found_revision() == ""
