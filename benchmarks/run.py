"""One run of the benchmarks: sizes, the reference client, and where samples go. Figures get this and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from .candidates import OURS, Candidate, Case
from .compiling import NoCompiler
from .reference import Rates, Reference
from .results import Results, Sample
from .sizes import Sizes


class Run:
    """What the figures measure with."""

    def __init__(self, sizes: Sizes, results: Results) -> None:
        self.sizes = sizes
        self.round = 0
        self._results = results
        self._reference = Reference(sizes.reference_messages)
        self._rates: dict[tuple[str, str], float] = {}

    def reference(self) -> Rates:
        """Return the C client's rates and costs of this minute; nothing where it cannot be compiled."""
        try:
            return self._reference.rates()
        except NoCompiler as problem:
            print(f"no reference: {problem}", file=sys.stderr)
            return {}

    def add(self, figure: str, case: str, values: Mapping[str, float | None], *, who: str = OURS.name) -> None:
        """Keep what was measured; a value that this system cannot tell (None) is left out."""
        known = {name: value for name, value in values.items() if value is not None}
        sample = Sample(figure=figure, who=who, case=case, round=self.round, values=known, reference=self.reference())
        self._results.add(sample)
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in known.items())
        print(f"  round {self.round}  {figure:10} {who}, {case}: {shown}", file=sys.stderr, flush=True)

    # -- How many tasks a drain needs ---------------------------------------------------------------------------------

    def drain_count(self, candidate: Candidate, case: Case) -> int:
        """Return how many tasks take about `drain_s`, judged by the last round."""
        rate = self._rates.get((candidate.name, case.name), case.expected_rate)
        return max(100, round(rate * self.sizes.drain_s / 100) * 100)

    def note_rate(self, candidate: Candidate, case: Case, rate: float) -> None:
        """Remember how fast it was."""
        self._rates[candidate.name, case.name] = rate
