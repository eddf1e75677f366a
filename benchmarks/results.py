"""Samples of one run: kept as JSON lines while they are taken, summed up as medians afterwards."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one round of one measurement gave."""

    figure: str
    who: str
    case: str
    round: int
    #: By name; the unit is part of the name, rates are in tasks (or messages) a second.
    values: Mapping[str, float]
    #: Rates and costs of the C client of the same minute.
    reference: Mapping[str, float]


Row = tuple[str, str, str]


class Results:
    """All samples of a run. With a path, each is written down at once, so that a broken run loses nothing."""

    def __init__(self, path: Path | None = None, *, machine: Mapping[str, Any] | None = None) -> None:
        self.machine = dict(machine or {})
        self.samples: list[Sample] = []
        self._path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"machine": self.machine}) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read a run that was written down earlier."""
        first, *rest = path.read_text().splitlines()
        results = cls(machine=json.loads(first)["machine"])
        results.samples = [Sample(**json.loads(line)) for line in rest]
        return results

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(sample)) + "\n")

    def rows(self) -> list[Row]:
        """Return figure, candidate and case of everything measured, in the order of the first round."""
        return list(dict.fromkeys((sample.figure, sample.who, sample.case) for sample in self.samples))

    def values(self, row: Row) -> list[str]:
        """Return the names of the values of a row."""
        return list(dict.fromkeys(name for sample in self._of(row) for name in sample.values))

    def median(self, row: Row, value: str) -> float | None:
        """Return the median over the rounds, None when it was not measured."""
        return self._median(row, lambda sample: sample.values.get(value))

    def extremes(self, row: Row, value: str) -> tuple[float, float] | None:
        """Return the least and the largest of all rounds; None when there were fewer than two."""
        found = [sample.values[value] for sample in self._of(row) if value in sample.values]
        return (min(found), max(found)) if len(found) > 1 else None

    def ratio(self, row: Row, value: str, reference: str) -> float | None:
        """Return the median over the rounds of value / reference of the same minute."""
        found = self.ratios(row, value, reference)
        return statistics.median(found) if found else None

    def ratios(self, row: Row, value: str, reference: str) -> list[float]:
        """Return value / reference of the same minute for each round in which both were measured."""
        samples = [each for each in self._of(row) if value in each.values and each.reference.get(reference)]
        return [each.values[value] / each.reference[reference] for each in samples]

    def product(self, row: Row, value: str, reference: str) -> float | None:
        """Return the median over the rounds of value * reference of the same minute."""
        return self._median(
            row, lambda each: each.values.get(value, math.nan) * each.reference.get(reference, math.nan)
        )

    def reference(self, name: str) -> float | None:
        """Return the median of one of the C client's rates."""
        found = {sample.reference[name] for sample in self.samples if name in sample.reference}
        return statistics.median(found) if found else None

    def _of(self, row: Row) -> list[Sample]:
        return [sample for sample in self.samples if (sample.figure, sample.who, sample.case) == row]

    def _median(self, row: Row, read: Callable[[Sample], float | None]) -> float | None:
        found = [value for value in map(read, self._of(row)) if value is not None and not math.isnan(value)]
        return statistics.median(found) if found else None
