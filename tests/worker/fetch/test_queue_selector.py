"""Which queues a worker looks at, and in which order: what it finds out without a message being taken."""

from __future__ import annotations

from collections import Counter

import pytest

from rsmq_django.core.keys import queues_key
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import consumer
from rsmq_django.worker.fetch.queue_selector import QueueSelector
from rsmq_django.worker.sources.queues import QueueSource
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, new_worker


def selector_of_a_worker(*queue_names: str) -> QueueSelector:
    """Return the queues of a worker that has just started."""
    (source,) = new_worker(*queue_names).sources
    assert isinstance(source, QueueSource)
    source.selector.provision()
    return source.selector


def names(selector: QueueSelector) -> list[str]:
    return [work_queue.name for work_queue in selector.choose(10).queues]


def test_a_new_priority_is_in_the_next_look_in_its_place(project: Configure):
    selector = selector_of_a_worker()
    declared = declare(lambda: None)
    for priority in (5, -5, 50):
        declared.using(priority=priority).enqueue()
    assert names(selector) == ["default"]

    found = selector.find_bands()

    assert {work_queue.name for work_queue in found} == {"default-p5", "default-m5", "default-p50"}
    assert names(selector) == ["default-p50", "default-p5", "default", "default-m5"]
    assert selector.find_bands() == []


def test_a_queue_that_was_deleted_stays_and_its_priorities_go(project: Configure):
    selector = selector_of_a_worker()
    declare(lambda: None).using(priority=5).enqueue()
    selector.find_bands()
    for name in ("default", "default-p5"):
        get_queue(name).delete_queue()

    assert selector.find_bands() == []

    assert names(selector) == ["default"]


def test_number_of_queues_is_known_unless_the_list_cannot_be_read(project: Configure, server: PrivateServer):
    selector = selector_of_a_worker()
    ensure_queue("default")
    selector.find_bands()
    assert selector.known_count == server.redis.scard(queues_key("rsmq"))

    server.redis.set(queues_key("rsmq"), "of some other program")
    assert selector.find_bands() == []

    assert selector.known_count == -1
    assert names(selector) == ["default"]


@pytest.mark.parametrize("is_provisioned", [False, True])
def test_scan_is_complete_when_queues_and_priorities_are_known(project: Configure, is_provisioned: bool):
    selector = selector_of_a_worker()
    assert selector.is_settled

    selector.is_provisioned, selector.bands_are_known = is_provisioned, False
    assert [selector.is_settled] == [False]
    declare(lambda: None).using(priority=5).enqueue()
    get_queue("default").delete_queue()
    selector.provision()

    assert selector.is_settled
    assert names(selector) == ["default-p5", "default"]
    assert (get_queue("default").name in _existing()) is not is_provisioned, "only what is new is created"


def _existing() -> set[str]:
    connection = get_client().connection
    (found,) = connection.exchange([("SMEMBERS", queues_key("rsmq"))])
    return {name.decode() for name in found}


@pytest.mark.parametrize(("count", "weight", "is_scanned"), [(50, 0, False), (51, 0, True), (51, 2, False)])
def test_very_many_queues_without_weights_are_scanned_for_queues_with_messages(
    configure: Configure, count: int, weight: int, is_scanned: bool
):
    options = {"WEIGHT": weight} if weight else {}
    configure(**{f"q{number}": options for number in range(count)})
    (source,) = new_worker().sources
    assert isinstance(source, QueueSource)

    assert (source.selector.scan is not None) is is_scanned


def test_without_weights_there_are_no_limits(configure: Configure):
    configure(mail={}, reports={})

    look = selector_of_a_worker("reports", "mail").choose(10)

    assert [work_queue.name for work_queue in look.queues] == ["reports", "mail"]
    assert (list(look.limits), look.quotas, look.batches, look.is_partial) == (["", ""], None, (), False)


def test_one_weight_makes_shares_in_which_the_others_count_one(configure: Configure):
    configure(mail={"WEIGHT": 3}, reports={})
    declare(queue_name="mail")(lambda: None).using(priority=7).enqueue()

    look = selector_of_a_worker("reports", "mail").choose(8)

    assert look.quotas == {"mail": 6, "reports": 2}
    limits = dict(zip([work_queue.name for work_queue in look.queues], look.limits, strict=True))
    assert limits == {"mail-p7": 6, "mail": "", "reports": 2}


def test_a_single_queue_needs_no_shares(configure: Configure):
    configure(mail={"WEIGHT": 3})

    assert selector_of_a_worker("mail").choose(8).quotas is None


def test_queues_with_batches_are_passed_by_position(configure: Configure):
    configure(mail={}, reports={})
    consumer("reports", batch=10)(lambda messages: None)

    look = selector_of_a_worker("mail", "reports").choose(4)

    assert list(look.batches) == [2, 10]


def test_batches_count_as_calls_in_the_shares(configure: Configure):
    configure(mail={"WEIGHT": 1}, reports={"WEIGHT": 1})
    consumer("reports", batch=10)(lambda messages: None)
    selector = selector_of_a_worker("mail", "reports")
    look = selector.choose(4)
    queues = {work_queue.name: work_queue for work_queue in look.queues}

    selector.note_fetched(look, Counter({queues["mail"]: 2, queues["reports"]: 11}))  # two calls each

    assert selector.choose(4).quotas == {"mail": 2, "reports": 2}
