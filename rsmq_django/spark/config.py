"""Configuration of a pipeline run: plain data that can be passed as JSON, without secrets.

`manage.py rsmq_pipeline config` writes it for spark-submit; the address of Redis stays in an environment variable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from ..core.errors import RsmqError
from .burn import read_objectives
from .capacity import DEFAULT_QUANTILE, DEFAULT_WAIT_TARGET_S
from .errors import WrongOption, failure_of
from .lake import Lake
from .options import DEFAULT_URL_VARIABLE, Options
from .server import NO_ANSWER, Server


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One pipeline."""

    #: Path or address of the lake.
    lake: str
    master: str = "local[2]"
    #: Additional Spark settings.
    conf: Mapping[str, str] = field(default_factory=dict)
    #: A zip of the package, for executors that have not installed it.
    py_files: str = ""
    namespace: str = "rsmq"
    #: Environment variable with the address of Redis.
    url_env: str = DEFAULT_URL_VARIABLE
    #: Dotted path of a credential provider; it is imported on the driver and on each executor.
    credential_provider: str = ""
    #: Name of a connection -> options of the source, for each further log that is archived.
    logs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: More options of the source, such as failOnDataLoss.
    source: Mapping[str, str] = field(default_factory=dict)
    #: Queue -> {"success": 0.999, "wait_p95_ms": 2000}.
    objectives: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Queue -> target latency, for capacity advice; "*" applies to all other queues.
    wait_targets_s: Mapping[str, float] = field(default_factory=dict)
    wait_quantile: float = DEFAULT_QUANTILE
    #: Concurrency of a worker process.
    slots_per_worker: int = 8
    #: Table -> days to keep, if not the default.
    keep_days: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> JobConfig:
        """Return a configuration. Raises WrongOption for unknown keys and invalid objectives."""
        given = json.loads(text)
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise WrongOption(
                f"unknown keys in the job's JSON: {', '.join(unknown)}; known keys are {', '.join(sorted(known))}"
            )
        config = cls(**given)
        read_objectives(config.objectives)
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> JobConfig:
        """Return the configuration of a dictionary, see from_json()."""
        return cls.from_json(Path(path).read_text("utf-8"))

    def to_json(self) -> str:
        """Return the configuration as JSON for spark-submit."""
        return json.dumps(asdict(self), indent=2, sort_keys=True)

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of the data source for Spark."""
        given = {"credentialProvider": self.credential_provider} if self.credential_provider else {}
        return {"urlEnv": self.url_env, "ns": self.namespace, **given, **self.source, **more}

    def sources(self) -> dict[str, dict[str, str]]:
        """Return the options of the source for each log that is archived; the name of the first one is empty."""
        return {"": self.options()} | {name: {**given, **self.source} for name, given in self.logs.items()}

    def shards(self) -> dict[str, dict[str, str]]:
        """Return the options of the source for the first connection and its shards: they have its address."""
        return {name: given for name, given in self.sources().items() if given["urlEnv"] == self.url_env}

    def find_lake(self) -> Lake:
        """Return the lake."""
        return Lake.at(self.lake)

    def server(self) -> Server:
        """Return the server. Raises WrongOption when its variable is not set."""
        return Options.read(self.options()).server()

    def wait_target_s(self, queue: str) -> float:
        """Return the target latency of a queue."""
        return float(self.wait_targets_s.get(queue, self.wait_targets_s.get("*", DEFAULT_WAIT_TARGET_S)))


def on_each(
    sources: Mapping[str, Mapping[str, str]], work: Callable[[Options], None], **options: str
) -> Exception | None:
    """Do work on each of the connections, also after a failure; return the failure of any. A single one is raised.

    A server that did not answer gets no time to come back on its other connections: it was waited for once.
    """
    failed: dict[str, Exception] = {}
    gone: set[str] = set()
    for name, source in sources.items():
        found = Options.read({**source, **options})
        try:
            work(replace(found, patience_s=0.0) if found.url in gone else found)
        except RsmqError as error:
            if len(sources) == 1:
                raise
            failed[name or found.namespace] = error
            if isinstance(error, NO_ANSWER):
                gone.add(found.url)
    return failure_of(failed) if failed else None
