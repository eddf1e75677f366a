"""Services refuse commands of administration: a server that lacks them does the work all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rsmq_django.core.acl import ROLES, commands_of
from tests.documentation import ROOT, Project
from tests.replicated_server import ReplicatedServer
from tests.support import wait_until

#: The commands that docs/how-to/managed_redis.md says the services refuse, as far as a server can be told to.
REFUSED = "BGREWRITEAOF BGSAVE CONFIG DEBUG MIGRATE PSYNC REPLICAOF SAVE SHUTDOWN SLAVEOF SYNC".split()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ReplicatedServer]:
    """A cluster of one node without the commands of administration."""
    words = [word for name in REFUSED for word in ("--rename-command", name, "")]
    server = ReplicatedServer(tmp_path / "server", "--cluster-enabled", "yes", *words)
    try:
        server.redis.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: server.redis.cluster("info")["cluster_state"] == "ok")
        yield server
    finally:
        server.kill()


@pytest.mark.slow
def test_tasks_run_on_a_cluster_that_refuses_commands_of_administration(
    tmp_path: Path, service: ReplicatedServer
) -> None:
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", ROOT / "docs" / "reference" / "coding_agents.md", service.url)
    settings = (project.directory / "settings.py").read_text()
    settings += "RSMQ['QUEUES'] = {'mail': {}}\nRSMQ['CONNECTIONS']['default']['NAMESPACE'] = '{rsmq}'\n"
    project.write("settings.py", settings)
    number = project.python("from shop.tasks import send_receipt; print(send_receipt.enqueue(7).id)").strip()

    project.run("-m", "django", "rsmq_worker", "--batch")

    said = project.python(
        f"from shop.tasks import send_receipt; print(send_receipt.get_result({number!r}).return_value)"
    )
    assert said.strip() == "sent 7"
    assert "mail" in project.run("-m", "django", "rsmq_stats")
    assert "1 finding\nnote     whether the server writes snapshots:" in project.run("-m", "django", "rsmq_doctor")


@pytest.mark.parametrize("role", ROLES)
def test_commands_that_services_refuse_are_used_only_to_look_at_the_server(role: str) -> None:
    used = {command.partition("|")[0].upper() for command in commands_of(role)}

    assert used & set(REFUSED) == ({"CONFIG"} if role in {"viewer", "operator", "pipeline"} else set())
