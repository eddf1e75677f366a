"""Every page of the admin, with something on it."""

import json
import time
from collections.abc import Sequence

from django.contrib.admin.utils import quote

from rsmq_django import schedules
from rsmq_django.core import Queue
from rsmq_django.core.queue.retry_plans import begin, go_on
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.core.tasks.stacks import tell_stacks
from rsmq_django.core.topic import Topic
from rsmq_django.core.topic.lag import note_lag_call
from rsmq_django.live.row_keys import row_key
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import call, group
from tests.browser.chromium import Visitor
from tests.browser.scenery import PAY, run_a_day
from tests.browser.weeks import remember_weeks
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

RETRIED = fingerprint("shop.tasks.pay", "builtins.ConnectionError", "no answer")

#: Of the longest kind, in one word.
LONG_NAME = "reports_of_the_accounting_department_by_month_and_by_subsidiary"

LONG_ERROR = "shop.integrations_of_parcel_services.client_errors.AddressCannotBeDelivered"

PAGES = {
    "site": "/admin/",
    "index": "/admin/rsmq/",
    "queues": "/admin/rsmq/queue/",
    "queue": "/admin/rsmq/queue/mail/change/",
    "queue-of-a-long-name": f"/admin/rsmq/queue/{quote(LONG_NAME)}/change/",
    "queue-history": "/admin/rsmq/queue/mail/history/",
    "queue-delete": "/admin/rsmq/queue/mail/delete/",
    "queue-send": "/admin/rsmq/queue/mail/send/",
    "queue-enqueue": "/admin/rsmq/queue/mail/enqueue/",
    "queue-purge": "/admin/rsmq/queue/mail/purge/",
    "queue-failures": "/admin/rsmq/queue/mail-dead/failures/",
    "queue-redrive": "/admin/rsmq/queue/mail-dead/redrive/",
    "queue-retries": "/admin/rsmq/queue/mail-dead/retries/?failure={failure}",
    "messages": "/admin/rsmq/message/",
    "messages-of-a-queue": "/admin/rsmq/message/?queue=mail",
    "message": "/admin/rsmq/message/{message}/change/",
    "message-delete": "/admin/rsmq/message/{message}/delete/",
    "queues-day": "/admin/rsmq/queue/?span=24h",
    "workers": "/admin/rsmq/worker/",
    "worker": "/admin/rsmq/worker/{worker}/change/",
    "schedules": "/admin/rsmq/schedule/",
    "schedule": "/admin/rsmq/schedule/remind-gate/change/",
    "schedule-add": "/admin/rsmq/schedule/add/",
    "schedule-add-form": "/admin/rsmq/schedule/add/?task=tests.worker.site.tasks.write",
    "schedule-edit": "/admin/rsmq/schedule/remind-gate/edit/",
    "schedule-delete": "/admin/rsmq/schedule/remind-gate/delete/",
    "tasks": "/admin/rsmq/registeredtask/",
    "task": "/admin/rsmq/registeredtask/{task}/change/",
    "results": "/admin/rsmq/result/?q=t7",
    "result": "/admin/rsmq/result/t7/change/",
    "result-run": "/admin/rsmq/result/t8/run/",
    "topics": "/admin/rsmq/topic/",
    "topic": "/admin/rsmq/topic/orders/change/",
    "seek": "/admin/rsmq/topic/orders/groups/billing/seek/",
    "workflows": "/admin/rsmq/workflow/",
    "workflow": "/admin/rsmq/workflow/{workflow}/change/",
    "reliable-queues": "/admin/rsmq/reliablequeue/",
    "reliable-queue": "/admin/rsmq/reliablequeue/parcels/change/",
    "history": "/admin/rsmq_pipeline/taskhour/?span=12w",
    "history-of-a-task": "/admin/rsmq_pipeline/taskhour/?span=2d&queue=mail&task=shop.tasks.pay&o=-run_p99_ms",
    "history-of-nothing": "/admin/rsmq_pipeline/taskhour/?q=zoo&since=2026-02-03T00:00&until=2026-02-01T00:00",
    "history-failures": "/admin/rsmq_pipeline/failuregroup/?span=12w",
    "history-failures-muted": "/admin/rsmq_pipeline/failuregroup/?queue=mail&new=7d&muted=on",
    "history-failures-none": "/admin/rsmq_pipeline/failuregroup/?span=2d&task=zoo",
    "objectives": "/admin/rsmq_pipeline/sloburn/",
    "pipeline-runs": "/admin/rsmq_pipeline/pipelinerun/",
    "pipeline-run": "/admin/rsmq_pipeline/pipelinerun/{pipeline_run}/change/",
    "runs": "/admin/rsmq/run/",
    "runs-of-a-task": "/admin/rsmq/run/?task=shop.tasks.pay&outcome=failed&q=card",
    "run": "/admin/rsmq/run/{run}/change/",
    "capacity": "/admin/rsmq_pipeline/capacityadvice/",
    "anomalies": "/admin/rsmq_pipeline/anomaly/",
    "depths": "/admin/rsmq_pipeline/queuedepth/?span=2d",
    "depths-of-a-queue": "/admin/rsmq_pipeline/queuedepth/?span=2w&queue=mail",
    "lake": "/admin/rsmq_pipeline/lakeday/?span=12w",
    "lake-of-a-queue": f"/admin/rsmq_pipeline/lakeday/?table=drained/{LONG_NAME}",
}


def fill_pages(mail: Queue, dead: Queue, server: PrivateServer) -> dict[str, str]:
    """Have something on every page, and return what the addresses in PAGES name."""
    mail.send_many([json.dumps({"letter": number, "to": "ada@example.org"}).encode() for number in range(30)])
    Queue(LONG_NAME, mail.client).create()
    held = mail.receive(visibility_timeout_s=600)
    assert held is not None
    record = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.pay", "error": LONG_ERROR}
    died = dead.send(b'{"task": "shop.tasks.pay", "id": "t7", "args": [7], "kwargs": {"currency": "EUR"}}')
    server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record | {"message": "no such card", "traceback": "T"}))
    failed = {"status": "FAILED", "queue": "mail", "message": died, "worker:1": "w"}
    failed |= {"error:1": json.dumps([LONG_ERROR, "Traceback"])}
    server.redis.hset("rsmq::result:t7", mapping=failed)
    call = json.dumps({"task": "tests.worker.site.tasks.toil", "args": ["slow", 3.5], "kwargs": {}})
    server.redis.hset("rsmq::result:t8", mapping={"status": "SUCCESSFUL", "queue": "default", "body": call})
    some_retries(dead, server, record)
    worker_id = run_a_day(mail, also="default", held={held.id: 12_400})
    server.redis.hset(f"rsmq::worker:{worker_id}", "1 mail", f"\n{held.id} 1")
    mail.client.run(
        tell_stacks("rsmq", worker_id, {held.id: '  File "/srv/shop/tasks.py", line 7, in pay\n    wait()\n'})
    )
    # They live for as long as somebody looks at the pages.
    for worker in server.redis.zrange("rsmq::workers", 0, -1):
        server.redis.zincrby("rsmq::workers", 3_600_000, worker)
        for kind in (b"worker", b"process", b"stacks"):
            server.redis.persist(b"rsmq::" + kind + b":" + worker)
    schedules.add("remind-gate", write, cron="*/15 * * * *", args=["Gate 7"])
    topic = Topic("orders", mail.client)
    topic.publish(*(json.dumps({"order": number, "items": ["tea", "milk"]}) for number in range(200)), key="shop-1")
    topic.group("billing").read(120)
    topic.group("shipping").read(30)
    for ago_s in range(0, 3600, 60):
        lags = {"billing": 80 + 40 * (ago_s // 60 % 3), "shipping": max(0, 170 - ago_s // 18)}
        mail.client.run(note_lag_call(topic, lags, at_s=time.time() - ago_s))
    items = ReliableQueue("parcels", mail.client, consumer="shop-1")
    items.push(*(f"parcel {number}" for number in range(9)))
    items.bury(items.pop_messages(5)[0], reason="no such address")
    run_id = remember_weeks(queue_with_a_long_name=LONG_NAME, long_error=LONG_ERROR)
    return {
        "message": quote(f"mail-dead/{died}"),
        "worker": quote(f"default/{worker_id}"),
        "task": quote(PAY),
        "failure": RETRIED,
        "workflow": quote(f"default/{some_workflow(server)}"),
        "run": quote(row_key("default", some_runs(server, died))),
        "pipeline_run": str(run_id),
    }


def some_retries(dead: Queue, server: PrivateServer, record: dict[str, str]) -> None:
    """Have a probe that has ended, a retry that goes on, and dead letters of the same failure that are left."""
    failure = record | {"error": "builtins.ConnectionError", "message": "no answer"}
    for number in range(9):
        died = dead.send(b'{"task": "shop.tasks.pay", "id": "r%d"}' % number)
        server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(failure | {"task_id": f"r{number}"}))
    for limit in (1, 6):
        plan_id = begin(dead.client, "mail-dead", rate=0.01, to_look_at=50, failure=RETRIED, limit=limit, task=PAY)
        for _plan in go_on(dead.client, plan_id, lambda message: b"ConnectionError" in message.failure_json):
            pass


def some_runs(server: PrivateServer, message_id: str) -> str:
    """Have runs of several outcomes; return what stands for one that failed."""
    for number, kind in enumerate(("succeeded", "retried", "dead", "lost", "released", "cancelled", "succeeded")):
        error = ("builtins.ValueError", f"no such card: {number}") if kind in ("retried", "dead") else ("", "")
        values = [kind, "mail", "shop.tasks.pay", f"call-{number}", f"m{number}", 1, "", 1500, 2_500_000, 47]
        values += ["web-1-411-a3f9c1", *error]
        words = {"v": "\n".join(map(str, values)), **({"g": "tour 7"} if number % 2 else {})}
        server.redis.xadd("rsmq::events", words)
    values = ["dead", "mail", "shop.tasks.pay", "t7", message_id, 2, "", 1500, 2_500_000, 47, "web-1-411-a3f9c1"]
    entry = "\n".join(map(str, [*values, "builtins.ValueError", "no such card"]))
    first = entry.replace("dead", "retried", 1).replace("\n2\n", "\n1\n", 1)
    server.redis.xadd("rsmq::events", {"v": first})
    entry_id = server.redis.xadd("rsmq::events", {"v": entry, "g": "tour 7"}).decode()
    return f"{entry_id}/{message_id}/shop.tasks.pay"


def some_workflow(server: PrivateServer) -> str:
    """Have a workflow of which one member has succeeded, one has failed, and one is open."""
    ensure_queue("default")
    workflow_id = group([call(write, f"letter {n}") for n in range(3)], then=call(write), name="letters").enqueue().id
    state, failure = f"rsmq::workflow:{workflow_id}", {"reason": "gave_up", "task": "shop.tasks.pay"}
    server.redis.hdel(f"{state}:members", 0, 1)
    server.redis.hset(f"{state}:results", 0, '"letter 0"')
    failure |= {"error": "builtins.ValueError", "message": "no such card"}
    server.redis.hset(f"{state}:failures", 1, "t7 " + json.dumps(failure))
    server.redis.hset(state, mapping={"succeeded": 1, "calls_done": 1, "failed": 1})
    return workflow_id


#: What can be done on a page, by the texts of its links, buttons and choices.
ACTIONS: dict[str, tuple[str, ...]] = {
    "queues": ("1 hour", "24 hours", "7 days", "Delete selected queues"),
    "queue": ("Send a message", "Enqueue a task", "Purge", "Pause", "History", "7 days", "Save", "Delete"),
    "queue-delete": ("Yes, I’m sure",),
    "queue-send": ("Send",),
    "queue-purge": ("Purge",),
    "queue-failures": ("Retry…", "Delete…"),
    "queue-redrive": ("Retry",),
    "queue-retries": ("Retry one as a probe", "Retry all", "Cancel the retry"),
    "messages": ("Delete…", "Run now"),
    "message": ("Retry", "Move to", "Delete", "Download body", "History"),
    "workers": ("Restart",),
    "worker": ("Restart", "Show stacks", "History"),
    "schedules": ("Add schedule", "Run now", "Pause", "Resume"),
    "schedule": ("Run now", "Pause", "Change", "Delete…", "History"),
    "task": ("Messages", "24 hours"),
    "result-run": ("Run", "Cancel"),
    "topic": ("Replay…", "History", "Show", "‹ older"),
    "seek": ("Preview",),
    "workflow": ("Cancel…", "History"),
    "reliable-queue": ("Acknowledge", "Retry", "History"),
    "history": ("1 year", "Download CSV"),
    "history-failures": ("Retry…", "Mute"),
}


def missing_actions(visitor: Visitor, actions: Sequence[str]) -> list[str]:
    """Return which of these a person does not find on the page that is shown."""
    found = visitor.page.evaluate(
        """() => [...document.querySelectorAll("a, button, input[type=submit], select[name=action] option")]
            .filter((each) => each.localName === "option" || each.checkVisibility({visibilityProperty: true}))
            .flatMap((each) => [each.localName === "input" && each.value || each.textContent, each.title || ""])
            .map((text) => text.trim())"""
    )
    return [action for action in actions if not any(text.startswith(action) for text in found)]
