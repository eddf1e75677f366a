"""The options of `format("rsmq")`: parsed once on the driver, then pickled to the executors.

The address may contain a password. It is read from the environment or a file on the driver, appears in no `repr`,
offset or message, and executors do not need the variable.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.keys import checked_name, checked_namespace, events_key
from ..core.limits import MAX_BATCH
from ..core.transport.handshake import find_provider
from ..core.transport.streams import BEGINNING, id_order
from .errors import WrongOption
from .server import Server

DEFAULT_URL_VARIABLE = "RSMQ_REDIS_URL"
KINDS = ("queue", "dead", "events", "topic", "drain", "tasks")
#: Options that Spark adds, or that its own writers use.
OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parsed options."""

    url: str = field(repr=False)
    #: Dotted path of a credential provider, which the driver and each executor import; empty: the URL has them.
    credential_provider: str = ""
    #: queue (read: snapshot; write: messages), dead (read), events, topic, drain, or tasks (write).
    kind: str = "queue"
    namespace: str = "rsmq"
    queues: tuple[str, ...] = ()
    topic: str = ""
    #: Streams of the event log; the default is the one log of the namespace.
    streams: tuple[str, ...] = ()
    #: Name of the consumer whose journal a drain uses.
    consumer: str = "lake"
    #: 0 deletes messages from the queue at once; a larger value hides them for that time.
    lease_s: float = 0.0
    #: Name of a bulk job. Running a finished job again sends nothing.
    job: str = ""
    #: Task for the rows of kind=tasks without a column `task`.
    task: str = ""
    #: Write straight into the queue: half the work, but a task that Spark runs twice sends twice.
    direct: bool = False
    #: Rows of a micro-batch; each batch costs about a second regardless of its size.
    max_rows: int = 50_000
    #: Rows of one Spark task.
    partition_rows: int = 25_000
    #: Rows of one Redis call, which bounds scripts and replies.
    chunk_rows: int = MAX_BATCH
    #: Fail if rows were trimmed unread, as Kafka's source does; false counts them and continues.
    fail_on_data_loss: bool = True
    #: Stream -> id after which a new reader starts. Fixed, so that a checkpoint can be recreated.
    start_after: Mapping[str, str] = field(default_factory=dict)
    #: The last id that a batch read includes from each stream.
    end_at: str = "+"
    start_index: int = 1
    end_index: int | None = None
    #: Connection of the log, in its rows and marks; "" for the first one of a pipeline.
    connection: str = ""
    #: How long to wait for an unavailable server.
    patience_s: float = 30.0

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """Return the options from Spark's mapping; names are case-insensitive. Raises WrongOption with a suggestion."""
        texts = {name.lower(): value for name, value in given.items() if name.lower() not in OF_SPARK}
        for name in texts:
            if name not in _KNOWN:
                close = difflib.get_close_matches(name, _KNOWN, n=1)
                hint = (
                    f"did you mean {_KNOWN[close[0]]!r}?"
                    if close
                    else f"known options are {', '.join(_KNOWN.values())}"
                )
                raise WrongOption(f"unknown option {name!r} of format rsmq; {hint}")
        values = {
            field_name: reader(option, texts[option.lower()])
            for option, (field_name, reader) in _READERS.items()
            if option.lower() in texts
        }
        return cls(url=_find_url(texts), **values)._checked()

    def server(self) -> Server:
        """Return the server, which connects at its first use."""
        provider = find_provider(self.credential_provider) if self.credential_provider else None
        return Server(self.url, namespace=self.namespace, patience_s=self.patience_s, credential_provider=provider)

    def log_name(self, stream: str) -> str:
        """Return the name of a log in the lake: servers may have streams of the same name."""
        return named_log(self.connection, stream)

    def _checked(self) -> Options:
        if self.kind == "drain" and not self.queues:
            raise WrongOption("kind=drain needs the option queue: the queues to drain")
        if self.kind == "topic" and not self.topic:
            raise WrongOption("kind=topic needs the option topic")
        if self.kind == "events" and not self.streams:
            return replace(self, streams=(events_key(self.namespace),))
        return self


def named_log(connection: str, stream: str) -> str:
    """Return the name of a log in the lake."""
    return f"{connection}#{stream}" if connection else stream


def _find_url(texts: Mapping[str, str]) -> str:
    if texts.get("url"):
        return texts["url"]
    if texts.get("urlfile"):
        return Path(texts["urlfile"]).read_text("utf-8").strip()
    variable = texts.get("urlenv", DEFAULT_URL_VARIABLE)
    if not os.environ.get(variable):
        raise WrongOption(
            f"the environment variable {variable} is not set on the driver; it must contain the Redis URL"
        )
    return os.environ[variable]


# -- Values ------------------------------------------------------------------------------------------------------------


def _names(_option: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _queues(option: str, text: str) -> tuple[str, ...]:
    return tuple(checked_name(name) for name in _names(option, text))


def _text(_option: str, text: str) -> str:
    return text


def _kind(option: str, text: str) -> str:
    if text not in KINDS:
        raise WrongOption(f"option {option} is {text!r}; use one of {', '.join(KINDS)}")
    return text


def _consumer(option: str, text: str) -> str:
    # It is part of a key.
    return checked_name(text)


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise WrongOption(f"option {option} is {text!r}; use true or false")
    return text.lower() == "true"


def _whole(option: str, text: str) -> int:
    if not text.isdecimal():
        raise WrongOption(f"option {option} is {text!r}; use a whole number")
    return int(text)


def _positive(option: str, text: str) -> int:
    number = _whole(option, text)
    if number < 1:
        raise WrongOption(f"option {option} is {text!r}; use a whole number from 1 on")
    return number


def _chunk(option: str, text: str) -> int:
    return min(MAX_BATCH, _positive(option, text))


def _seconds(option: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise WrongOption(f"option {option} is {text!r}; use a number of seconds")
    return seconds


def _places(option: str, text: str) -> Mapping[str, str]:
    try:
        places = json.loads(text)
        for place in places.values():
            id_order(place)
    except (ValueError, AttributeError) as error:
        example = json.dumps({"rsmq::events": BEGINNING})
        raise WrongOption(f"option {option} is {text!r}; use JSON such as {example}") from error
    return dict(places)


def _place(option: str, text: str) -> str:
    try:
        if text != "+":  # the newest
            id_order(text)
    except ValueError as error:
        raise WrongOption(f"option {option} is {text!r}; use an id of the log such as 1795194592459-0") from error
    return text


#: Option -> its field, and the parser of its text.
_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "kind": ("kind", _kind),
    "ns": ("namespace", lambda _option, text: checked_namespace(text)),
    "queue": ("queues", _queues),
    "topic": ("topic", _text),
    "streams": ("streams", _names),
    "credentialProvider": ("credential_provider", _text),
    "consumer": ("consumer", _consumer),
    "leaseS": ("lease_s", _seconds),
    "job": ("job", _text),
    "task": ("task", _text),
    "direct": ("direct", _flag),
    "maxRowsPerBatch": ("max_rows", _positive),
    "rowsPerPartition": ("partition_rows", _positive),
    "chunkRows": ("chunk_rows", _chunk),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "startAfter": ("start_after", _places),
    "endAt": ("end_at", _place),
    "startIndex": ("start_index", _positive),
    "endIndex": ("end_index", _whole),
    "patienceS": ("patience_s", _seconds),
}
_KNOWN = {name.lower(): name for name in (*_READERS, "url", "urlEnv", "urlFile")}
