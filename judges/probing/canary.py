"""Canaries: a few questions with known verdicts, asked again while a training runs, to notice a judge that drifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from gavel.judges.bindings import Binding
from gavel.judges.probing.probe import make_grader, run_controls
from gavel.judges.types import Control, Judge
from gavel.models.codec import record


@record
class CanaryRules:
    """``every`` training steps the set is asked; ``max_drift`` bounds the share of canaries with another label than at
    the start; beyond it ``stop`` ends the run, else it is only reported."""

    every: int = 50
    max_drift: float = 0.1
    stop: bool = False

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}; allowed: at least 1")
        if not 0.0 <= self.max_drift <= 1.0:
            raise ValueError(f"max_drift is {self.max_drift}; allowed: 0 to 1")


@record
class CanaryReport:
    """One round: ``drift`` over the canaries that were graded (None: none was), ``changed`` maps a canary to its label
    before and now, ``ungraded`` maps a canary to its failure kind, ``labels`` a graded one to its label."""

    step: int
    drift: float | None
    changed: Mapping[str, tuple[str, str]]
    ungraded: Mapping[str, str]
    exceeded: bool
    stop: bool
    labels: Mapping[str, str] = field(default_factory=dict)


class Canaries:
    """Asks the canaries of one binding at their steps.

    Args:
        binding: the judge that is watched.
        judge: grades with it; made ``fresh``, so that it is the model that answers and not a cache.
        rules: when, and what drift is too much.
        controls: the canaries; by default the rubric's controls.
        baseline: the label of each canary at the start (from a certificate's rows); None: what the first round finds.
    """

    def __init__(
        self,
        binding: Binding,
        judge: Judge,
        rules: CanaryRules,
        *,
        controls: Sequence[Control] | None = None,
        baseline: Mapping[str, str] | None = None,
    ) -> None:
        self._grade, self._rules = make_grader(binding, judge), rules
        self._controls = tuple(controls) if controls is not None else binding.rubric.controls
        self._baseline = dict(baseline or {})

    async def ask_due(self, step: int) -> CanaryReport | None:
        """Ask the canaries if ``step`` is one of theirs; return what was found, else None."""
        if step % self._rules.every or not self._controls:
            return None
        rows = await run_controls("control", self._controls, self._grade)
        graded = {row.name: row.got for row in rows if row.graded}
        changed = {}
        for name, label in graded.items():
            before = self._baseline.setdefault(name, label)
            if before != label:
                changed[name] = (before, label)
        drift = len(changed) / len(graded) if graded else None
        exceeded = drift is not None and drift > self._rules.max_drift
        ungraded = {row.name: row.got for row in rows if not row.graded}
        return CanaryReport(step, drift, changed, ungraded, exceeded, exceeded and self._rules.stop, graded)
