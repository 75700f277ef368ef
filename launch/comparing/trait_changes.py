"""Whether the replies of a training became like what its reward pays for: each trait now against the first steps.

A change is told where three things hold: it is larger than ``Trait.least``, so that it matters; larger than ``NOISE``
standard errors over tasks, which chance does not give in thousands of looks; and the reward goes with the trait in the
same direction (a regression over the samples of both ends, its error over tasks), so that it is paid for. It is no
verdict: the replies must be read. A change that the reward does not pay for is how models drift, and is only shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np

from gavel.envs.traits import TRAITS, Trait
from gavel.envs.types import Metric
from gavel.launch.comparing.curves import compute_task_means
from gavel.launch.comparing.ledgers import LedgerSample
from gavel.models.codec import record
from gavel.models.files import load_lines
from gavel.models.statistics import compute_clustered_mean, compute_t975, encode_names

FILE = "traits.jsonl"
"""What a training run was told of, in its folder."""
FIRST, LAST = 4, 3
"""Steps at the start of a training, and at the moment that is looked at, which are set against each other."""
NOISE, PAID = 6.0, 2.5
"""Standard errors from which on a change is beyond noise, and the reward goes with a trait."""
LEAST_TASKS = 4
"""With fewer tasks on either side nothing is said."""


@record
class TraitChange:
    """One trait at the start of a training and at ``step``: ``difference`` with its interval over tasks, ``paid`` how
    much the reward changes with one unit of the trait, None where either does not vary. ``beyond``: the change is one
    to look at.
    """

    SCHEMA: ClassVar[str] = "gavel.trait_change/1"

    trait: str
    step: int
    first: float
    last: float
    difference: Metric
    paid: Metric | None
    beyond: bool

    def describe(self) -> str:
        """Say it in a line."""
        trait, low, high = TRAITS[self.trait], self.difference.low, self.difference.high
        what = trait.grew if self.difference.value > 0 else trait.fell
        change = (
            f"{_format_value(trait, self.first)} at the start, {_format_value(trait, self.last)} at step {self.step}"
        )
        interval = (
            f"change {self.difference.value:+.2f} [{low:+.2f}, {high:+.2f}]" if low is not None else "no interval"
        )
        paid = (
            ""
            if self.paid is None
            else f"; reward {self.paid.value:+.2f} for one more"
            + (f" [{self.paid.low:+.2f}, {self.paid.high:+.2f}]" if self.paid.low is not None else "")
        )
        return f"{self.trait}: {what}: {change} ({interval}{paid})"


def _format_value(trait: Trait, value: float) -> str:
    return f"{2**value - 1:.0f} words" if trait.name == "length" else f"{value:.0%}"


def find_trait_changes(samples: Iterable[LedgerSample]) -> tuple[TraitChange, ...]:
    """Return the change of each trait between the first steps and the last ones, in the order of ``TRAITS``.

    Args:
        samples: of a training, with their traits; those of the first ``FIRST`` and the last ``LAST`` steps are used.

    Returns:
        Nothing where the training has too few steps, or tasks, for a comparison.
    """
    said = sorted((sample for sample in samples if sample.traits), key=lambda sample: sample.step)
    steps = [list(group) for _, group in groupby(said, key=lambda sample: sample.step)]
    if len(steps) < FIRST + 1:
        return ()
    first = [sample for step in steps[:FIRST] for sample in step]
    last = [sample for step in steps[max(FIRST, len(steps) - LAST) :] for sample in step]
    found = (_compare_ends(trait, place, first, last) for place, trait in enumerate(TRAITS.values()))
    return tuple(change for change in found if change is not None)


def _compare_ends(
    trait: Trait, place: int, first: Sequence[LedgerSample], last: Sequence[LedgerSample]
) -> TraitChange | None:
    sides = [list(compute_task_means(side, lambda sample: sample.traits[place]).values()) for side in (first, last)]
    if min(map(len, sides)) < LEAST_TASKS:
        return None
    before, after = (float(np.mean(side)) for side in sides)
    floor = (trait.least / 4) ** 2  # tasks that happen to be all alike are not sure to be so
    parts = [max(float(np.var(side, ddof=1)), floor) / len(side) for side in sides]
    error, change = math.sqrt(sum(parts)), after - before
    half = compute_t975(min(map(len, sides)) - 1) * error
    paid = compute_payment([*first, *last], place)
    beyond = abs(change) >= trait.least and abs(change) > NOISE * error and paid is not None and _is_paid(paid, change)
    difference = Metric(change, change - half, change + half, len(first) + len(last))
    return TraitChange(trait.name, last[-1].step, before, after, difference, paid, beyond)


def _is_paid(paid: Metric, change: float) -> bool:
    """Tell whether the reward goes the way of a change, by ``PAID`` errors; the interval's half is two of them."""
    if paid.low is None or paid.high is None:
        return False
    return paid.value * change > 0 and abs(paid.value) > PAID / 2 * (paid.high - paid.low) / 2


def compute_payment(samples: Sequence[LedgerSample], place: int) -> Metric | None:
    """Return the slope of the reward over a trait among graded samples, with its interval over tasks.

    Args:
        samples: with traits.
        place: of the trait among ``TRAITS``.
    """
    graded = [(sample.reward, sample) for sample in samples if sample.reward is not None and sample.traits]
    if len(graded) < 2:
        return None
    rewards = np.array([reward for reward, _ in graded], dtype=np.float64)
    values = np.array([sample.traits[place] for _, sample in graded], dtype=np.float64)
    away = values - values.mean()
    spread = float(away @ away) / len(away)
    if spread < 1e-12:
        return None
    slope = float(away @ rewards) / len(away) / spread
    left = rewards - rewards.mean() - slope * away
    clusters = encode_names(sample.cluster or sample.task for _, sample in graded)
    _, interval = compute_clustered_mean(away * left / spread, clusters, bounded=False)  # mean 0: the slope's own error
    low, high = (None, None) if interval is None else (slope + interval[0], slope + interval[1])
    return Metric(slope, low, high, len(graded))


def read_trait_changes(run: Path) -> list[TraitChange]:
    """Return what ``traits.jsonl`` holds; a line that a kill left torn is passed over."""
    return load_lines(TraitChange, run / FILE)
