"""The examination of a server and a namespace. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..keys import queue_keys
from ..transport.client import Client
from . import calls
from .calls import Facts
from .catalogue import found
from .dead_messages import examine_dead_messages
from .finding import ExpectedQueue, Finding, Progress
from .messages import examine_fields, examine_messages, examine_side_data
from .own_keys import examine_own_keys
from .probe import Probe
from .queues import examine_attributes, examine_queue, is_queue
from .server import examine_server
from .service import examine_service
from .survey import Survey, survey

Settings = Mapping[str, ExpectedQueue]


def examine(
    client: Client,
    *,
    settings: Settings | None = None,
    deep: bool = False,
    progress: Progress | None = None,
) -> list[Finding]:
    """Return the findings about the client's server and namespace, worst first. Changes nothing.

    `settings` has the expected attributes of each queue. Of a long queue, only the first 20,000 messages and fields
    are examined unless `deep`. Data that the server's user may not read is reported as a finding. Raises
    ConnectionFailed and the other errors of a server that cannot answer.
    """
    expected, report = settings or {}, progress or _silent
    probe = Probe(client)
    client.go_to_keys()
    findings = list(examine_server(probe))
    seen = survey(probe, deep=deep, progress=report)
    findings += seen.findings
    findings += [found("rbmq", name, "it has a key of rbmq") for name in sorted(seen.rbmq)]
    facts = _look_at_all(probe, seen)
    for number, (name, known) in enumerate(facts.items()):
        report("queues", number, len(facts))
        findings += _examine_one(probe, name, known, seen, expected.get(name), deep=deep, progress=report)
    findings += [found("not-created", name, "it does not exist yet") for name in expected if name not in facts]
    for name in sorted(seen.noted):
        exists = name in facts
        findings += examine_side_data(probe, name, queue_keys(client.namespace, name), exists=exists, deep=deep)
    findings += examine_own_keys(probe)
    findings += examine_dead_messages(probe)
    if any(queue.is_worked_on or queue.dead_letter for queue in expected.values()):
        findings += examine_service(probe, expected, list(facts))
    findings += probe.findings()
    return sorted(findings, key=lambda one: (-one.severity, one.subject, one.id))


def _silent(_what: str, _done: int, _total: int | None) -> None:
    pass


def _look_at_all(probe: Probe, seen: Survey) -> dict[str, Facts]:
    """Return the facts about every name that is the name of a queue."""
    names = seen.names
    looks = probe.run_many(
        [calls.read_facts(queue_keys(probe.client.namespace, name)) for name in names], about="attributes of queues"
    )
    return {
        name: facts
        for name, facts in zip(names, looks, strict=True)
        if facts is not None and is_queue(facts, is_listed=name in seen.listed)
    }


def _examine_one(
    probe: Probe,
    name: str,
    facts: Facts,
    seen: Survey,
    expected: ExpectedQueue | None,
    *,
    deep: bool,
    progress: Progress,
) -> Iterator[Finding]:
    keys = queue_keys(probe.client.namespace, name)
    yield from examine_queue(name, facts, is_listed=name in seen.listed)
    yield from examine_attributes(name, facts, expected)
    if facts.has_index and (facts.has_hash or name in seen.listed):
        yield from examine_messages(probe, name, keys, total=facts.messages, deep=deep, progress=progress)
    if facts.has_hash:
        yield from examine_fields(probe, name, keys, total=facts.fields, deep=deep, progress=progress)
