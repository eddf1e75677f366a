"""The picture of a workflow: the parts of chains, groups and maps, small and large."""

import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.admin.workflow_graph import graph_of
from rsmq_django.models import Workflow as Row
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import Workflow, call, chain, group, map_tasks
from rsmq_django.tasks.workflow_shape import MAX_RUNS, read_shape, shape_text
from tests.admin.pages import text_of
from tests.redis_server import PrivateServer
from tests.worker.site import tasks


@pytest.fixture
def send(project: None, django_capture_on_commit_callbacks: Any) -> Callable[[Any], Workflow]:
    """Send a workflow that no worker takes."""
    ensure_queue("default")

    def act(description: Any) -> Workflow:
        with django_capture_on_commit_callbacks(execute=True):
            sent: Workflow = description.enqueue()
            return sent

    return act


def graph(workflow: Workflow, *, may_view_body: bool = True) -> Any:
    row = Row.objects.get(pk=f"default/{workflow.id}")
    return graph_of(row, may_view_body=may_view_body)


def shown(nodes: Any) -> list[tuple[str, str, str]]:
    return [(node.task.rpartition(".")[2], node.arguments, node.state_text) for node in nodes]


def page_of(browser: Browser, workflow: Workflow) -> Any:
    return browser.get(f"/admin/rsmq/workflow/{quote(f'default/{workflow.id}')}/change/")


def end(server: PrivateServer, workflow: Workflow, member: int, **record: Any) -> None:
    """Write what a worker writes when a member of one call has succeeded."""
    keys = f"rsmq::workflow:{workflow.id}"
    task_id = server.redis.hget(f"{keys}:members", member).decode()
    server.redis.hdel(f"{keys}:members", member)
    server.redis.hincrby(keys, "succeeded", 1)
    server.redis.hincrby(keys, "calls_done", 1)
    server.redis.hset(f"rsmq::result:{task_id}", mapping=dict(record, status="SUCCESSFUL"))


def test_chain_is_drawn_with_tasks_arguments_and_states(send: Callable[..., Workflow]):
    workflow = send(chain(call(tasks.write, "a"), call(tasks.write), on_failure=call(tasks.write)))

    found = graph(workflow)

    assert [shown(branch) for branch in found.branches] == [
        [("write", 'name="a"', "ready"), ("write", "", "not sent yet")],
    ]
    assert shown([found.on_failure]) == [("write", "", "not sent yet")] and found.then is None


def test_arguments_of_later_steps_are_shown(send: Callable[..., Workflow]):
    later = call(tasks.write, "b").without_result()

    found = graph(send(chain(call(tasks.write, "a"), later)))

    assert found.branches[0][1].arguments == 'name="b"'


def test_secret_arguments_are_hidden_and_all_are_hidden_without_the_permission(send: Callable[..., Workflow]):
    workflow = send(group([call(tasks.write, {"password": "hunter2"}), call(tasks.write, "b")]))

    assert "hunter2" not in str(graph(workflow).nodes) and "password" in graph(workflow).nodes[0].arguments
    assert [node.arguments for node in graph(workflow, may_view_body=False).nodes] == ["", ""]


def test_members_show_how_they_ended_and_how_long_they_took(send: Callable[..., Workflow], server: PrivateServer):
    workflow = send(group([call(tasks.write, str(n)) for n in range(3)], then=call(tasks.write)))
    end(server, workflow, 0, attempted_ms="1000", finished_ms="63000")
    keys = f"rsmq::workflow:{workflow.id}"
    failed = server.redis.hget(f"{keys}:members", 1).decode()
    server.redis.hdel(f"{keys}:members", 1)
    server.redis.hset(f"{keys}:failures", 1, f"{failed} " + json.dumps({"reason": "gave_up"}))
    running = server.redis.hget(f"{keys}:members", 2).decode()
    server.redis.hset(f"rsmq::result:{running}", "status", "RUNNING")

    found = graph(workflow)

    states = [(branch[0].state, branch[0].run_time) for branch in found.branches]
    assert states == [("done", "1 min 2 s"), ("failed", ""), ("running", "")]
    assert found.then.state == "later"


def test_chains_in_a_group_are_branches_of_their_own(send: Callable[..., Workflow]):
    members = [chain(call(tasks.write, "a"), call(tasks.write)), call(tasks.write, "b")]

    found = graph(send(group(members)))

    assert [[node.label for node in branch] for branch in found.branches] == [
        ["member 0, step 1", "member 0, step 2"],
        ["member 1"],
    ]


def test_map_of_ten_thousand_members_is_one_box(
    browser: Browser, project: None, server: PrivateServer, transactional_db: None
):
    ensure_queue("default")
    workflow = map_tasks(tasks.write, (str(n) for n in range(10_000)), then=call(tasks.write, "end"), window=20_000)
    state = f"rsmq::workflow:{workflow.id}"
    server.redis.hset(state, mapping={"succeeded": 9120, "calls_done": 9120, "failed": 12})

    page = page_of(browser, workflow)

    [[node]] = page.context["graph"].branches
    assert (node.label, node.state_text) == ("Map of 10,000", "9,120 done, 12 failed, 868 ready")
    assert "Map of 10,000" in text_of(page) and len(page.context["picture"]) < 5000


def test_large_group_of_chains_counts_each_step(send: Callable[..., Workflow], server: PrivateServer):
    members = [chain(call(tasks.write, str(n)), call(tasks.ordinary)) for n in range(40)]
    workflow = send(group([*members, *(call(tasks.write, str(n)) for n in range(3))]))
    keys = f"rsmq::workflow:{workflow.id}"
    server.redis.hdel(f"{keys}:steps", *(f"{n}.1" for n in range(30)))  # their second step was sent
    server.redis.hdel(f"{keys}:members", *range(10))  # and has ended for ten of them

    [first, second], [third] = graph(workflow).branches

    assert (first.counts["done"], first.counts["ready"]) == (30, 10)
    assert (second.counts["done"], second.counts["ready"], second.counts["later"]) == (10, 20, 10)
    assert (third.counts["done"], third.counts["ready"]) == (0, 3)


def test_cancelled_workflow_shows_the_calls_that_did_not_run(send: Callable[..., Workflow]):
    workflow = send(chain(call(tasks.write, "a"), call(tasks.write)))
    workflow.cancel()

    assert [node.state for node in graph(workflow).branches[0]] == ["cancelled", "cancelled"]


def test_picture_is_an_svg_without_script_or_style_and_with_a_sign_for_each_state(
    browser: Browser, send: Callable[..., Workflow], server: PrivateServer
):
    workflow = send(group([call(tasks.write, "<script>&")] * 3, then=call(tasks.write), on_failure=call(tasks.write)))
    end(server, workflow, 0)

    picture = page_of(browser, workflow).context["picture"]

    root = ElementTree.fromstring(picture)  # noqa: S314 - ours
    assert root[0].text == "Group: 3 members, 1 of 3 calls done"
    assert not re.search(r"<script|\bstyle=|\bon\w+=|<style", picture)
    assert "✓" in picture and "○" in picture and "…" in picture
    assert len(re.findall(r"<a href", picture)) == 5, "each call leads to its result"


def test_words_of_the_picture_are_german(browser: Browser, send: Callable[..., Workflow], settings: Any):
    workflow = send(group([call(tasks.write, "a"), call(tasks.write, "b")], then=call(tasks.write)))
    settings.LANGUAGE_CODE = "de"

    assert ">danach</text>" in page_of(browser, workflow).context["picture"]


def test_table_has_the_same_data_as_the_picture(browser: Browser, send: Callable[..., Workflow]):
    text = text_of(page_of(browser, send(chain(call(tasks.write, "a"), call(tasks.write)))))

    assert "step 1 tests.worker.site.tasks.write ready" in text


def test_workflow_of_an_older_version_has_no_picture(
    browser: Browser, send: Callable[..., Workflow], server: PrivateServer
):
    workflow = send(group([call(tasks.write, "a")]))
    for shape in ("", "{", "[]", '{"runs": 7}', '{"runs": [[-1, []]]}', '{"runs": [[1, [["x", "y"]]]]}'):
        server.redis.hset(f"rsmq::workflow:{workflow.id}", "shape", shape)

        assert page_of(browser, workflow).context["graph"] is None


def test_shape_of_many_kinds_of_members_stays_small():
    members = [([f"shop.tasks.t{n}"], [str(n)]) for n in range(10_000)]

    text = shape_text(members, mapped="", then="", on_failure="")

    shape = read_shape(text)
    assert len(text) < 1000 and len(shape.runs) == MAX_RUNS
    assert sum(run.count for run in shape.runs) == 10_000 and shape.ids == ()


def test_members_of_many_kinds_are_all_drawn(send: Callable[..., Workflow], browser: Browser, monkeypatch: Any):
    monkeypatch.setattr("rsmq_django.tasks.workflow_shape.MAX_RUNS", 2)
    kinds: list[Any] = [tasks.write, tasks.look_at_database, tasks.write, tasks.look_at_database]
    workflow = send(group([call(kind, "a") for kind in kinds]))

    found = graph(workflow)

    assert [[node.task.rpartition(".")[2] for node in branch] for branch in found.branches] == [
        [kind.func.__name__] for kind in kinds
    ]
    assert page_of(browser, workflow).status_code == 200


def test_members_beyond_the_distinguished_runs_are_counted(send: Callable[..., Workflow], monkeypatch: Any):
    monkeypatch.setattr("rsmq_django.tasks.workflow_shape.MAX_RUNS", 2)
    monkeypatch.setattr("rsmq_django.tasks.workflow_shape.MAX_IDS", 1)
    kinds: list[Any] = [tasks.write, tasks.look_at_database, tasks.write, tasks.look_at_database]

    found = graph(send(group([call(kind, "a") for kind in kinds])))

    assert [(node.task, node.counts["ready"]) for branch in found.branches for node in branch][1:] == [
        ("several tasks", 3)
    ]


@pytest.mark.parametrize("steps", [[["shop.tasks.a", 1]], [["shop.tasks.a", 10**12]]])
def test_ids_that_do_not_fit_the_steps_are_left_out(steps: list[Any]):
    assert read_shape(json.dumps({"runs": [[1, steps]], "ids": [["t1", "t2"]]})).ids == ()
