"""The traps of RSMQ that other clients fell into: for each there is a test that fails without our guard.

The table says which; those without a file in front stand below. A test compares it with the tests that exist.

 1 ghosts
     core/queue/test_server.py::test_ghost_queue_is_not_taken_for_a_queue
     core/queue/test_send.py::test_sending_to_a_missing_queue_leaves_nothing_behind
     core/doctor/test_repair.py::test_messages_of_a_ghost_can_be_received_afterwards
 2 half-created queues
     core/queue/test_server.py::test_create_fills_the_gaps_of_a_half_created_queue
     core/queue/test_lifecycle.py::test_creating_a_half_created_queue_lists_it_again
 3 lost scripts
     core/queue/test_server.py::test_every_operation_survives_the_loss_of_the_scripts
     core/queue/test_server.py::test_batch_of_calls_survives_the_loss_of_the_scripts
     test_scripts_are_sent_once_and_not_with_every_call
 4 values passed as keys
     core/test_imports.py::test_no_script_builds_a_key
     core/queue/test_acl.py::test_worker_does_everything_a_queue_can
     test_cluster_with_a_hash_tag_in_the_namespace_serves_every_operation
 5 reading whole hashes
     core/test_imports.py::test_no_script_on_a_queue_reads_its_whole_hash
     test_no_operation_uses_a_command_that_grows_with_the_queue
 6 fields left behind
     core/queue/test_settle.py::test_deleted_message_leaves_no_data_behind
     core/doctor/test_repair.py::test_orphaned_bodies_become_messages_of_a_queue_of_their_own
 7 phantoms
     core/queue/test_receive.py::test_young_phantom_is_left_alone_and_the_next_message_delivered
     core/queue/test_phantoms.py::test_removed_phantom_is_counted_and_named
 8 clocks
     core/queue/test_send.py::test_ids_of_a_batch_carry_successive_microseconds
     test_clock_of_this_machine_does_not_matter
     test_server_clock_that_is_set_back_delays_messages_and_breaks_nothing
 9 colliding ids
     core/test_ids.py::test_all_62_characters_are_drawn_equally_often
     test_forked_processes_draw_different_ids
     test_id_that_exists_keeps_its_place
10 Lua, RESP and types
     core/queue/test_foreign.py::test_first_receive_that_is_missing_stays_unknown
     core/queue/test_send.py::test_large_scores_are_stored_without_an_exponent
     core/transport/test_connection.py::test_options_in_the_url_do_not_change_how_replies_are_read
11 zero, empty, overflow
     core/queue/test_lifecycle.py::test_zero_is_a_value_and_not_the_absence_of_one
     core/queue/test_send.py::test_delay_of_zero_overrides_the_delay_of_the_queue
     core/queue/test_send.py::test_body_comes_back_byte_for_byte
     core/queue/test_receive.py::test_longest_visibility_timeout_does_not_overflow
12 names, ids and values
     core/queue/test_validation.py::test_illegal_names_are_refused
     core/queue/test_settle.py::test_id_of_an_impossible_form_is_refused
     core/queue/test_settle.py::test_receipt_named_like_an_attribute_never_costs_the_queue_that_attribute
13 sizes
     core/queue/test_send.py::test_size_is_counted_in_bytes_and_not_in_characters
     test_body_that_is_too_long_for_its_queue_is_received_anyway
14 no owner
     core/queue/test_settle.py::test_late_delete_is_refused_and_does_not_change_the_new_lease
     core/queue/test_settle.py::test_late_extension_is_refused_and_does_not_change_the_new_lease
     core/queue/test_stateful.py::test_broken_script_is_found_out
15 heartbeats
     worker/lease/test_leases.py::test_queue_without_a_visibility_timeout_is_worked_on_under_a_lease
     worker/test_outcomes.py::test_failed_message_is_invisible_for_the_backoff
     worker/lease/test_leases.py::test_late_outcome_is_discarded_and_logged
16 failing wake-ups
     test_failed_publish_of_the_wake_up_is_not_a_failed_send
17 poison
     worker/test_outcomes.py::test_message_whose_worker_died_at_each_attempt_is_not_run_again
     worker/test_outcomes.py::test_dead_letter_is_the_message_itself
     core/queue/test_browse.py::test_reading_leaves_no_trace
     core/queue/test_moves.py::test_old_receipt_means_nothing_after_a_redrive
18 order
     core/queue/test_receive.py::test_batch_with_a_visibility_timeout_of_zero_gives_each_message_once
     test_released_message_is_after_older_ones
19 realtime
     core/queue/test_send.py::test_realtime_queue_publishes_the_number_of_messages
     worker/fetch/test_wakeup.py::test_delayed_message_is_taken_when_it_is_due
     worker/fetch/test_wakeup.py::test_sender_that_does_not_publish_is_noticed_by_polling
20 eviction
     core/doctor/test_examine.py::test_server_that_evicts_queues_is_reported
     core/queue/test_tolerant_reader.py::test_doctor_reports_the_leftovers_of_every_client_and_nothing_else
21 half-made hashes
     core/queue/test_lifecycle.py::test_setting_attributes_of_a_missing_queue_writes_nothing
     core/doctor/test_repair.py::test_gaps_are_filled_and_existing_values_stay
22 mixed units
     worker/fetch/test_queues.py::test_seconds_taken_for_milliseconds_stop_the_worker_before_it_takes_a_message
     core/doctor/test_examine.py::test_attribute_that_differs_from_the_settings_is_reported
23 hidden defaults
     core/queue/test_receive.py::test_visibility_timeout_of_the_queue_is_the_default
     core/queue/test_send.py::test_delay_of_the_queue_is_the_default
24 pops that block
     test_no_script_takes_messages_without_a_lease

Of a full or flaky server:
25 full memory
     core/queue/test_server.py::test_full_server_can_be_drained
     core/doctor/test_repair.py::test_repair_works_on_a_full_server_or_reports_the_reason
26 lost replies
     core/transport/test_connection_lost_replies.py::test_send_with_a_lost_reply_is_reported_and_never_sent_again
     core/transport/test_connection_lost_replies.py::test_receive_with_a_lost_reply_hides_one_message_and_no_second
27 huge bodies
     test_huge_body_is_refused_before_anything_is_sent
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from rsmq_django.core import Client, Connection, Queue, list_queues
from rsmq_django.core.doctor import examine, repair
from rsmq_django.core.errors import MessageTooLong, ServerRefused
from rsmq_django.core.ids import random_suffix
from rsmq_django.core.limits import MAX_BODY_BYTES
from rsmq_django.core.queue import queue as queue_module
from rsmq_django.core.transport import client as client_module
from rsmq_django.core.transport.call import Script, load_script
from rsmq_django.embedded.binary import find_server
from tests.redis_server import PrivateServer
from tests.scripts import FILES
from tests.support import pass_time, wait_until

TESTS = Path(__file__).parent.parent


def guards() -> dict[int, list[str]]:
    """Return the tests that the table names, by trap."""
    found: dict[int, list[str]] = {}
    trap = 0
    for line in (__doc__ or "").splitlines():
        named = re.match(r" ?(\d+) \S", line)
        trap = int(named[1]) if named else trap
        test = re.search(r"(?:(\S+\.py)::)?(test_\w+)$", line)
        if test:
            found.setdefault(trap, []).append(f"{test[1] or 'core/test_traps.py'}::{test[2]}")
    return found


def test_every_trap_has_a_guard():
    assert sorted(guards()) == list(range(1, 28))


@pytest.mark.parametrize("guard", sorted({one for tests in guards().values() for one in tests}))
def test_guard_exists(guard: str):
    path, _, name = guard.partition("::")

    assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text("utf-8"), re.MULTILINE)


def every_operation(client: Client) -> None:
    """Do once what a queue can do."""
    queue = Queue("jobs", client, realtime=True)
    queue.create()
    queue.set_attributes(delay_s=0, max_size_bytes=-1)
    queue.send_many([b"a", b"b", b"c", b"d"])
    first, second, third = queue.receive_many(3)
    assert queue.change_visibility(first, 60) and queue.delete(second)
    assert queue.delete_many([first, third]) == [1, 1]
    assert queue.pop() is not None
    assert queue.attributes().messages == 0
    assert list_queues(client) == ["jobs"]
    queue.delete_queue()


def calls_of(server: redis.Redis, command: str) -> int:
    """Return how often a command was run since the statistics were reset, by clients and scripts."""
    return int(server.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


# -- 3: scripts ------------------------------------------------------------------------------------------------------


def test_scripts_are_sent_once_and_not_with_every_call(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    queue.receive(visibility_timeout_s=0)
    server.redis.config_resetstat()

    for _ in range(50):
        queue.send(b"x")
        queue.receive(visibility_timeout_s=0)

    assert calls_of(server.redis, "evalsha") == 100
    assert calls_of(server.redis, "eval") == calls_of(server.redis, "script|load") == 0


# -- 4: keys ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A cluster of one server: it refuses what a large one would refuse."""
    path = str(Path(tempfile.gettempdir()) / f"rsmq-cluster-{os.getpid()}")
    server = redis.Redis.from_url(f"unix://{path}", socket_timeout=60)
    process = _start_cluster(tmp_path_factory.mktemp("cluster"), path, server)
    try:
        for first in range(0, 16384, 1024):
            server.execute_command("CLUSTER", "ADDSLOTS", *range(first, first + 1024))
        wait_until(lambda: b"cluster_state:ok" in server.execute_command("CLUSTER", "INFO"))
        yield server
    finally:
        server.close()
        process.kill()
        process.wait()
        Path(path).unlink(missing_ok=True)


def _start_cluster(directory: Path, path: str, server: redis.Redis) -> subprocess.Popen[bytes]:
    """Start the server on some port; again on another one when somebody took that, or the one of its bus, first."""
    for _ in range(100):
        port = secrets.choice(range(10_001, 22_000))  # that of its bus is 10,000 higher
        command = [find_server().path, "--port", str(port), "--cluster-enabled", "yes", "--dir", str(directory)]
        command += ["--unixsocket", path, "--save", "", "--logfile", str(directory / "log"), "--bind", "127.0.0.1"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(lambda: answers(server) or process.poll() is not None)  # noqa: B023 - asked in the same round
        if process.poll() is None:
            return process
    raise AssertionError("no free port")


@pytest.fixture
def cluster(_cluster: redis.Redis) -> redis.Redis:
    """The cluster, emptied."""
    _cluster.flushall()
    return _cluster


def answers(server: redis.Redis) -> bool:
    try:
        return bool(server.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.slow
def test_cluster_with_a_hash_tag_in_the_namespace_serves_every_operation(cluster: redis.Redis):
    path = cluster.connection_pool.connection_kwargs["path"]
    tagged = Client(Connection(f"unix://{path}", timeout_s=15), namespace="{rsmq}")

    every_operation(tagged)

    queue = Queue("jobs", tagged)
    queue.create()
    cluster.zadd("{rsmq}:jobs", {"0" * 32: 1e12})
    findings = examine(tagged, deep=True)
    assert "phantoms" in {one.id for one in findings}
    assert all(not one.failure for one in repair(tagged, findings, wait=lambda _: None))


@pytest.mark.slow
def test_cluster_without_a_hash_tag_is_refused_with_a_reason(cluster: redis.Redis):
    plain = Client(Connection(f"unix://{cluster.connection_pool.connection_kwargs['path']}", timeout_s=15))

    with pytest.raises(ServerRefused, match="(?i)crossslot|slot"):
        Queue("jobs", plain).create()


# -- 5: commands -----------------------------------------------------------------------------------------------------


def test_no_operation_uses_a_command_that_grows_with_the_queue(server: PrivateServer, client: Client):
    server.redis.config_resetstat()

    every_operation(client)

    grows = ["hgetall", "hkeys", "hvals", "keys", "scan", "sort", "del", "zrange", "zrevrange", "zscan", "hscan"]
    assert [command for command in grows if calls_of(server.redis, command)] == []
    assert calls_of(server.redis, "unlink") > 0


# -- 8: clocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [-2 * 365 * 86_400, 86_400, 2 * 365 * 86_400])
def test_clock_of_this_machine_does_not_matter(
    server: PrivateServer, queue: Queue, monkeypatch: pytest.MonkeyPatch, off_s: float
):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)

    message_id = queue.send(b"x", delay_s=0.01)
    message = wait_until(lambda: queue.receive(visibility_timeout_s=30))

    assert abs(int(message_id[:10], 36) / 1e6 - server.redis.time()[0]) < 60
    assert message.first_received_ms is not None
    assert server.redis.zscore("rsmq:jobs", message_id) == message.first_received_ms + 30_000
    assert queue.delete(message)


def test_server_clock_that_is_set_back_delays_messages_and_breaks_nothing(queue: Queue):
    queue.send_many([b"waiting", b"held"])
    held = queue.receive(visibility_timeout_s=30)
    assert held is not None

    pass_time(queue, seconds=-3600)  # seen from the messages, the clock went back by an hour

    assert queue.receive() is None and queue.pop() is None
    assert queue.attributes().hidden_messages == 2
    assert queue.change_visibility(held, 30) is True, "a renewal heals the lease"
    pass_time(queue, seconds=31)
    again = queue.receive()
    assert again is not None and (again.id, again.receive_count) == (held.id, 2)
    pass_time(queue, seconds=3600)
    assert len(queue.receive_many(2)) == 2


# -- 9: ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_forked_processes_draw_different_ids():
    random_suffix()  # whatever a generator keeps from its first use, the children inherit
    drawn = [random_suffix()]
    for _ in range(3):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, random_suffix().encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        drawn.append(os.read(reader, 22).decode())
        os.close(reader)

    assert len(set(drawn)) == 4 and all(len(one) == 22 for one in drawn)


#: Forks as uWSGI does: Python's hooks do not run. The interpreter's lock stays with the forking thread.
FORK_IN_C = """
import ctypes, os, sys
from rsmq_django.core.ids import random_suffix
random_suffix()
child = ctypes.PyDLL(None).fork()
for _ in range(100):
    os.write(1, random_suffix().encode() + b"\\n")
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_processes_forked_by_a_server_in_c_draw_different_ids():
    done = subprocess.run([sys.executable, "-c", FORK_IN_C], capture_output=True, check=True)

    assert len(done.stdout.split()) == len(set(done.stdout.split())) == 200


def test_threads_draw_different_ids():
    with ThreadPoolExecutor(8) as threads:
        drawn = [
            each for some in threads.map(lambda _: [random_suffix() for _ in range(500)], range(8)) for each in some
        ]

    assert len(drawn) == len(set(drawn)) == 4000


def test_id_that_exists_keeps_its_place(server: PrivateServer, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    seconds, microseconds = server.redis.time()

    def at_one_moment(name: str) -> Script:
        now = f'{{"{seconds}", "{microseconds}"}}'
        text = load_script(name).source.decode().replace('redis.call("TIME")', now).encode()
        return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())

    monkeypatch.setattr(client_module, "load_script", at_one_moment)
    monkeypatch.setattr(queue_module, "random_suffixes", lambda count: iter(["A" * 22] * count))
    first = queue.send(b"x", delay_s=60)

    again = queue.send(b"x")

    assert again == first, "otherwise this shows nothing"
    assert server.redis.zscore("rsmq:jobs", first) == seconds * 1000 + microseconds // 1000 + 60_000


# -- 13 and 27: sizes ------------------------------------------------------------------------------------------------


def test_body_that_is_too_long_for_its_queue_is_received_anyway(server: PrivateServer, client: Client):
    # Node counts UTF-16 units: of what it calls 1024 there may be 3072 bytes.
    queue = Queue("small", client)
    queue.create(max_size_bytes=1024)
    body = "€".encode() * 1024
    server.redis.zadd("rsmq:small", {"0mxk3d9qaw" + "A" * 22: 1e12})
    server.redis.hset("rsmq:small:Q", "0mxk3d9qaw" + "A" * 22, body)

    message = queue.receive()

    assert message is not None and message.body == body


def test_huge_body_is_refused_before_anything_is_sent(server: PrivateServer, client: Client, queue: Queue):
    queue.set_attributes(max_size_bytes=-1)
    server.redis.config_resetstat()

    with pytest.raises(MessageTooLong, match="store it elsewhere"):
        queue.send(b"x" * (MAX_BODY_BYTES + 1))

    assert calls_of(server.redis, "evalsha") == calls_of(server.redis, "eval") == 0


# -- 16: wake-ups ----------------------------------------------------------------------------------------------------


def test_failed_publish_of_the_wake_up_is_not_a_failed_send(server: PrivateServer, queue: Queue):
    rules = "reset on >secret ~rsmq:* resetchannels +@all"
    server.redis.execute_command("ACL", "SETUSER", "mute", *rules.split())
    mute = Queue(
        "jobs", Client(Connection(server.url.replace("unix://", "unix://mute:secret@"), timeout_s=15)), realtime=True
    )

    message_id = mute.send(b"x")

    server.redis.execute_command("ACL", "DELUSER", "mute")
    assert server.redis.zrange("rsmq:jobs", 0, -1) == [message_id.encode()]
    assert queue.attributes().total_sent == 1


# -- 18: order -------------------------------------------------------------------------------------------------------


def test_released_message_is_after_older_ones(queue: Queue):
    first, second, third = queue.send_many([b"first", b"second", b"third"])
    pass_time(queue, seconds=5)
    taken = queue.receive()
    assert taken is not None and taken.id == first

    queue.change_visibility(taken, 0)

    assert [message.id for message in queue.receive_many(3)] == [second, third, first]


# -- 24: pops --------------------------------------------------------------------------------------------------------


def test_no_script_takes_messages_without_a_lease():
    texts = {name: path.read_text("utf-8") for name, path in FILES.items()}

    assert texts
    del texts["parts/wake"]  # it takes a worker process that waits, from a set of these
    assert not [name for name, text in texts.items() if re.search(r"B?ZM?POP(MIN|MAX)?\b", text)]
