"""The periodic jobs of a supervisor."""

from collections.abc import Sequence

import pytest

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.transport.call import load_script
from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.supervise.maintenance import PeriodicJob, make_maintenance
from rsmq_django.worker.supervise.recovery import Death
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, new_worker, queue_source, send_raw


def test_a_chore_that_raises_stops_no_other_and_is_tried_again(caplog: pytest.LogCaptureFixture):
    failures = [KeyError("ours"), KeyError("ours"), None]

    def do(_: Sequence[str]) -> float:
        if failure := failures.pop(0):
            raise failure
        return 10.0

    chore = PeriodicJob("schedules", do)

    for _ in range(3):
        chore.run(["w1"])

    assert failures == []
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"], "told once, with its place"
    assert "schedules: 'ours'. Trying again" in caplog.text


def test_an_unreachable_server_is_logged_once_for_all_maintenance_jobs():
    def do(_: Sequence[str]) -> float:
        raise ConnectionFailed("away")

    with pytest.raises(ConnectionFailed):
        PeriodicJob("schedules", do).run(["w1"])


# -- What it says at the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held_nothing", [True, False])
def test_only_possibly_leased_messages_are_reported_as_recoverable(
    project: Configure, caplog: pytest.LogCaptureFixture, held_nothing: bool
):
    (maintenance,) = make_maintenance(queue_settings([]), max_crashes=3)
    maintenance.note_death(Death(worker_id="w7", how="status 0", running=frozenset(), held_nothing=held_nothing))

    maintenance.close()

    assert ("messages leased by w7 become visible" in caplog.text) is not held_nothing


def test_idle_worker_has_no_leased_messages_when_the_server_fails(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker = new_worker()
        assert queue_source(worker).exchange(1) == []

    queue_source(worker).fetch_now()
    queue_source(worker).exchange(1)

    assert queue_source(worker).backoff.is_on
    assert worker.holds_nothing


def test_worker_whose_fetch_was_not_answered_may_have_leased_messages(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker = new_worker()
        source = queue_source(worker)
        assert source.exchange(1) == []
        send_raw(b"hello")

        proxy.lose_reply_to(load_script("tasks/worker/fetch").sha1.encode())
        source.fetch_now()
        assert source.exchange(1) == []
        assert not worker.holds_nothing

        wait_until(lambda: source.exchange(0) == [] and worker.holds_nothing)
