"""Training runs set against each other: their last steps, paired by task, and seeds of one composition taken together.

Two intervals of one difference answer two questions. Over tasks, with the seeds as they are: would these very trainings
differ on other prompts of the kind? Over seeds (Student's t over the paired seeds): would another training differ? With
two seeds the latter is wide, and that is the truth about two seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.envs.types import Metric
from gavel.launch.comparing.curves import (
    PAIRED_FROM,
    Change,
    CurvePoint,
    Value,
    compute_change,
    compute_checks,
    compute_mean_of,
    compute_task_means,
    count_ungraded,
    find_clusters,
    list_components,
    list_labels,
    make_curve,
    make_independent,
    match_label,
    pick_component,
    reward_of,
    split_ends,
)
from gavel.launch.comparing.ledgers import LedgerSample
from gavel.launch.comparing.paired import Bounds, clip_interval, compute_bootstrap, find_difference_bounds
from gavel.models.codec import record

Task = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """One training run: ``group`` is what it has in common with its other seeds; ``reward`` names how it was rewarded,
    ``bounds`` are its least and greatest value, None where they are not known."""

    name: str
    group: str
    seed: int
    reward: str
    samples: Sequence[LedgerSample]
    bounds: tuple[float, float] | None = None


@record
class RunCurve:
    """A run's curve, and its first steps against its last; ``change`` None where it has too few steps or no graded
    sample.
    """

    name: str
    group: str
    seed: int
    steps: int
    graded: int
    ungraded: Mapping[str, int]
    change: Change | None
    points: tuple[CurvePoint, ...]


@record
class GroupDifference:
    """``other`` less ``base`` over the last steps. ``over_tasks``: with its interval over tasks, seeds averaged; not
    paired where ``paired`` is 0. ``over_seeds``: over the seeds that both have; None where no seed is in both."""

    what: str
    base: str
    other: str
    base_mean: float
    other_mean: float
    over_tasks: Metric
    paired: int
    over_seeds: Metric | None


@record
class TrainingComparison:
    """What a comparison of training runs found; ``window`` steps at each end were used; ``rewards`` by group."""

    window: int
    base: str
    runs: tuple[RunCurve, ...]
    differences: tuple[GroupDifference, ...]
    rewards: Mapping[str, str]


def compare_training(
    runs: Sequence[TrainedRun], *, window: int, draws: int = 10_000, seed: int = 0
) -> TrainingComparison:
    """Compare groups of training runs with the first one's.

    Args:
        runs: at least one, names distinct.
        window: steps at each end of a run.
        draws: bootstrap draws.
        seed: of the bootstrap.
    """
    groups: dict[str, list[TrainedRun]] = defaultdict(list)
    for run in runs:
        groups[run.group].append(run)
    base, *others = groups
    lasts = {run.name: split_ends(run.samples, window)[1] for run in runs}
    found = [
        difference
        for other in others
        for what, value in list_measures([lasts[run.name] for run in (*groups[base], *groups[other])])
        if (difference := _compute_difference(what, value, groups[base], groups[other], lasts, draws, seed)) is not None
    ]
    return TrainingComparison(
        window,
        base,
        tuple(_make_curve(run, window) for run in runs),
        tuple(found),
        {group: kept[0].reward for group, kept in groups.items()},
    )


def list_measures(sides: Sequence[Sequence[LedgerSample]]) -> list[tuple[str, Value]]:
    """Return what can be compared between several sets of samples: rewards, the share of checks passed, labels, common
    components.
    """
    every = [sample for side in sides for sample in side]
    found: list[tuple[str, Value]] = [("reward", reward_of)]
    if all(any(sample.checks is not None for sample in side) for side in sides):
        found.append(("checks passed", compute_checks))
    found += [(f"label/{label}", match_label(label)) for label in list_labels(every)]
    common = list_components(sides)
    return found + ([(f"reward/{name}", pick_component(name)) for name in common] if len(common) > 1 else [])


def _make_curve(run: TrainedRun, window: int) -> RunCurve:
    steps = len({sample.step for sample in run.samples})
    graded = sum(sample.reward is not None for sample in run.samples)
    moved = compute_change(*split_ends(run.samples, window), bounds=(run.bounds, run.bounds)) if steps > 1 else None
    points = make_curve(run.samples, window=window, bounds=run.bounds)
    return RunCurve(run.name, run.group, run.seed, steps, graded, count_ungraded(run.samples), moved, points)


def _compute_difference(
    what: str,
    value: Value,
    base: Sequence[TrainedRun],
    other: Sequence[TrainedRun],
    lasts: Mapping[str, Sequence[LedgerSample]],
    draws: int,
    seed: int,
) -> GroupDifference | None:
    sides = [{run.seed: compute_task_means(lasts[run.name], value) for run in side} for side in (base, other)]
    first, second = (_average_seeds(side) for side in sides)
    if not first or not second:
        return None
    common = [task for task in first if task in second]
    ranges = _find_ranges(what, base, other)
    limits = find_difference_bounds(*ranges)
    if len(common) >= PAIRED_FROM:
        alike = find_clusters(one for run in (*base, *other) for one in lasts[run.name])
        differences = np.array(make_independent({task: second[task] - first[task] for task in common}, alike))
        found = clip_interval(compute_bootstrap(differences, draws, np.random.default_rng(seed), limits), limits)
        means = [sum(side[task] for task in common) / len(common) for side in (first, second)]
    else:
        ours, theirs = ([one for run in side for one in lasts[run.name]] for side in (base, other))
        unpaired = compute_change(ours, theirs, value, ranges)
        assert unpaired is not None, "both sides have graded samples"
        found, means, common = unpaired.difference, [unpaired.first.value, unpaired.last.value], []
    over_seeds = _compute_over_seeds(sides[0], sides[1], limits)
    return GroupDifference(what, base[0].group, other[0].group, means[0], means[1], found, len(common), over_seeds)


def is_share(what: str) -> bool:
    """Whether a measure is a share, whose values lie within [0, 1]."""
    return what == "checks passed" or what.startswith("label/")


def _find_ranges(
    what: str, base: Sequence[TrainedRun], other: Sequence[TrainedRun]
) -> tuple[Bounds | None, Bounds | None]:
    """Return the least and the greatest value of a measure in both groups, as far as they are known."""
    if is_share(what):
        return (0.0, 1.0), (0.0, 1.0)
    return (base[0].bounds, other[0].bounds) if what == "reward" else (None, None)


def _average_seeds(seeds: Mapping[int, Mapping[Task, float]]) -> dict[Task, float]:
    """Return the mean over seeds of each task that any of them has."""
    values: dict[Task, list[float]] = defaultdict(list)
    for side in seeds.values():
        for task, mean in side.items():
            values[task].append(mean)
    return {task: sum(found) / len(found) for task, found in values.items()}


def _compute_over_seeds(
    base: Mapping[int, Mapping[Task, float]], other: Mapping[int, Mapping[Task, float]], limits: Bounds | None
) -> Metric | None:
    """Return the mean over seeds of their differences; a pair of runs is paired by task where it has tasks in common.

    Seeds that happen to agree do not show how far others lie apart: each one's difference is itself a mean over tasks,
    and varies at least as such a mean does.
    """
    pairs = [_compare_seed(first, other[seed]) for seed, first in base.items() if first and other.get(seed)]
    if not pairs:
        return None
    floor = sum(variance for _, variance in pairs) / len(pairs)
    found = compute_mean_of([difference for difference, _ in pairs], None, floor)
    return clip_interval(found, limits)


def _compare_seed(first: Mapping[Task, float], second: Mapping[Task, float]) -> tuple[float, float]:
    """Return the difference of a pair of runs, and its variance over tasks."""
    common = [task for task in first if task in second]
    if len(common) >= PAIRED_FROM:
        each = [second[task] - first[task] for task in common]
        return sum(each) / len(each), float(np.var(each, ddof=1)) / len(each)
    sides = [list(side.values()) for side in (first, second)]
    spread = sum(float(np.var(side, ddof=1)) / len(side) for side in sides if len(side) > 1)
    return float(np.mean(sides[1]) - np.mean(sides[0])), spread
