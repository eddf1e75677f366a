"""The examination of a server and a namespace. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..keys import queue_keys
from ..transport.client import Client
from ..transport.portions import portions
from . import calls
from .calls import LOOKED_AT_A_TIME, Facts
from .catalogue import found
from .dead_messages import examine_dead_messages
from .finding import ExpectedQueue, Finding, Progress
from .messages import examine_fields, examine_messages, examine_side_data
from .own_keys import examine_own_keys
from .probe import Examination, Probe
from .queues import examine_attributes, examine_queue, is_queue
from .server import examine_server
from .service import examine_service
from .survey import Survey, survey

Settings = Mapping[str, ExpectedQueue]
#: Of short queues. Each takes up to three calls.
QUEUES_AT_A_TIME = 100


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
    for name, known in facts.items():
        findings += examine_queue(name, known, is_listed=name in seen.listed)
        findings += examine_attributes(name, known, expected.get(name))
    findings += [found("not-created", name, "it does not exist yet") for name in expected if name not in facts]
    findings += _examine_messages(probe, facts, seen, deep=deep, progress=report)
    for name in sorted(seen.noted - facts.keys()):
        findings.append(found("stale-side-data", name, "there are records about it, but no such queue"))
    findings += examine_own_keys(probe)
    findings += examine_dead_messages(probe)
    if any(queue.is_worked_on or queue.dead_letter for queue in expected.values()):
        findings += examine_service(probe, expected, [name for name, known in facts.items() if known.has_right_types])
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


def _examine_messages(
    probe: Probe, facts: Mapping[str, Facts], seen: Survey, *, deep: bool, progress: Progress
) -> Iterator[Finding]:
    """Yield the findings about single messages: a long queue is examined alone, many short ones side by side.

    So the scripts of one round trip together read no more than one slice of a long queue.
    """

    def examinations(name: str, known: Facts) -> Iterator[Examination]:
        keys = queue_keys(probe.client.namespace, name)
        if known.has_index and known.has_right_types and (known.has_hash or name in seen.listed):
            yield examine_messages(name, keys, total=known.messages, deep=deep, progress=progress)
        if known.fields > len(known.attributes):
            yield examine_fields(name, keys, total=known.fields, deep=deep, progress=progress)
        if name in seen.noted:
            yield examine_side_data(name, keys, deep=deep)

    done = 0
    by_size = portions(
        facts.items(), lambda each: each[1].messages + each[1].fields, count=QUEUES_AT_A_TIME, size=LOOKED_AT_A_TIME
    )
    for part in by_size:
        progress("queues", done, len(facts))
        done += len(part)
        yield from probe.examine_side_by_side(each for queue in part for each in examinations(*queue))
