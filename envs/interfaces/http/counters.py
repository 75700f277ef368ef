"""What the environments of a service did since it started, for ``/healthz``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gavel.envs.interfaces.http.records import Counts
from gavel.envs.types import Result


@dataclass(slots=True)
class EndTally:
    """Counts of one environment; ``seconds`` in transitions that were graded."""

    opened: int = 0
    observed: int = 0
    graded: int = 0
    invalid: int = 0
    seconds: float = 0.0
    ungraded: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count one end."""
        if result.status == "graded":
            self.graded += 1
            self.seconds += result.timing.total_s
        elif result.status == "invalid_task":
            self.invalid += 1
        else:
            assert result.outcome.failure is not None
            self.ungraded[result.outcome.failure.kind.value] += 1

    def read_counts(self) -> Counts:
        """Return the counts as they stand."""
        mean = self.seconds / self.graded if self.graded else 0.0
        return Counts(self.opened, self.observed, self.graded, dict(self.ungraded), self.invalid, mean)
