"""What a run of the pipeline is told: plain data that travels as JSON, without secrets.

`manage.py rsmq_pipeline config` writes it for spark-submit; the address of Redis stays in an environment variable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from .burn import read_objectives
from .capacity import DEFAULT_QUANTILE, DEFAULT_WAIT_TARGET_S
from .errors import WrongOption
from .lake import Lake
from .options import DEFAULT_URL_VARIABLE, Options
from .server import Server


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One pipeline."""

    #: Directory of the lake.
    lake: str
    master: str = "local[2]"
    #: Settings of Spark beside ours.
    conf: Mapping[str, str] = field(default_factory=dict)
    #: A zip of the package, for executors that have not installed it.
    py_files: str = ""
    namespace: str = "rsmq"
    #: Environment variable that holds the address of Redis.
    url_env: str = DEFAULT_URL_VARIABLE
    #: More options of the source, such as failOnDataLoss.
    source: Mapping[str, str] = field(default_factory=dict)
    #: Queue -> {"success": 0.999, "wait_p95_ms": 2000}.
    objectives: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Queue -> how long a message may wait, for capacity advice; "*" is for all others.
    wait_targets_s: Mapping[str, float] = field(default_factory=dict)
    wait_quantile: float = DEFAULT_QUANTILE
    #: How many tasks one worker process runs at a time.
    slots_per_worker: int = 8
    #: Table -> days that are kept, where it is not the default.
    keep_days: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> JobConfig:
        """Read a configuration. Raises WrongOption for unknown keys and impossible objectives."""
        given = json.loads(text)
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise WrongOption(
                f"unknown keys in the job's JSON: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        config = cls(**given)
        read_objectives(config.objectives)
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> JobConfig:
        """See from_json()."""
        return cls.from_json(Path(path).read_text("utf-8"))

    def to_json(self) -> str:
        """Return the configuration as spark-submit gets it."""
        return json.dumps(asdict(self), indent=2, sort_keys=True)

    def options(self, **more: str) -> dict[str, str]:
        """Return options of the source, as Spark gets them."""
        return {"urlEnv": self.url_env, "ns": self.namespace, **self.source, **more}

    def find_lake(self) -> Lake:
        """Return the lake."""
        return Lake.at(self.lake)

    def server(self) -> Server:
        """Return the server. Raises WrongOption when its variable is not set."""
        return Options.read(self.options()).server()

    def wait_target_s(self, queue: str) -> float:
        """Return how long messages of a queue may wait."""
        return float(self.wait_targets_s.get(queue, self.wait_targets_s.get("*", DEFAULT_WAIT_TARGET_S)))
