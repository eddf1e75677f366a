"""The sources of a worker: one for each connection and structure."""

from __future__ import annotations

from collections.abc import Sequence

from ...conf.settings import QueueSettings
from ..fetch.queues import work_queues_by_client
from .queues import QueueSource
from .reliable import make_reliable_sources
from .source import Source, SourceContext
from .topic import make_topic_sources


def make_sources(
    queues: Sequence[QueueSettings], reliable: Sequence[str], topics: Sequence[str] | None, context: SourceContext
) -> list[Source]:
    """Return the sources for these queues, reliable queues and topics; None for all topics with declared tasks."""
    return [
        *_make_queue_sources(queues, context),
        *make_reliable_sources(
            reliable,
            notifier=context.notifier,
            poll_interval_s=context.poll_interval_s,
            wake=context.wake,
            shared_state=context.shared_state,
            ends_by_itself=context.ends_by_itself,
        ),
        *make_topic_sources(topics, context),
    ]


def _make_queue_sources(queues: Sequence[QueueSettings], context: SourceContext) -> list[QueueSource]:
    by_client = work_queues_by_client(queues, context.notifier.worker_id)
    is_alone = len(by_client) == 1
    return [
        QueueSource(client, work_queues, context, connection_number=number, is_alone=is_alone)
        for number, (client, work_queues) in enumerate(by_client)
    ]
