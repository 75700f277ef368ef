"""How the reward of a training run moved: a mean for each step, and its first steps against its last ones, with
intervals.

Intervals are over tasks (prompts), for the replies to one prompt are alike, or over clusters of tasks that are alike.
Where both ends of a run saw the same tasks their difference is taken within each task, which leaves out how hard the
tasks of a step happen to be.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.envs.statistics import compute_mean as clustered
from gavel.envs.types import Metric
from gavel.launch.comparing.ledgers import LedgerSample
from gavel.launch.comparing.paired import (
    SAME,
    Bounds,
    clip_interval,
    compute_tied,
    find_difference_bounds,
    group_by_cluster,
)
from gavel.models.codec import record
from gavel.models.statistics import compute_t975, encode_names

WINDOW = 5
"""Steps at each end of a run that are set against each other, unless it is asked for others; never more than half of
it.
"""
PAIRED_FROM = 5
"""With fewer tasks in common, two sets of samples are compared as they are."""
UNPAIRED = 10
"""With fewer tasks on either side of such a comparison there is no interval."""

Value = Callable[[LedgerSample], float | None]


@record
class CurvePoint:
    """One step: the mean over its graded samples with its interval over tasks, ``mean`` None where none was graded;
    ``smooth`` over the last steps up to this one."""

    step: int
    mean: Metric | None
    smooth: Metric | None
    ungraded: int


@record
class Change:
    """``last`` less ``first``: means over the graded samples of each, and the difference; ``paired`` by that many
    tasks, 0 where the two have too few in common and the difference is that of two independent sets of tasks."""

    first: Metric
    last: Metric
    difference: Metric
    paired: int


def reward_of(sample: LedgerSample) -> float | None:
    """Return the reward of a sample, None where it is ungraded."""
    return sample.reward


def compute_checks(sample: LedgerSample) -> float | None:
    """Return the share of a sample's checks that passed."""
    return sample.checks if sample.reward is not None else None


def match_label(label: str) -> Value:
    """Return what says whether a graded sample has a label, as 1 or 0."""
    return lambda sample: None if sample.reward is None else float(sample.label == label)


def pick_component(name: str) -> Value:
    """Return what gives a component of the reward."""
    return lambda sample: None if sample.reward is None else (sample.components or {}).get(name)


def compute_mean(
    samples: Iterable[LedgerSample], value: Value = reward_of, bounds: Bounds | None = None
) -> Metric | None:
    """Return the mean over graded samples with its interval over tasks; ``n`` counts samples; None where there is
    none.
    """
    known = [(sample.cluster or sample.task, found) for sample in samples if (found := value(sample)) is not None]
    metric = clustered([found for _, found in known], encode_names(task for task, _ in known), bounds=bounds)
    if metric is not None and metric.low is not None and metric.high is not None and metric.high - metric.low < SAME:
        return replace(metric, low=None, high=None)
    return metric


def make_curve(
    samples: Sequence[LedgerSample], value: Value = reward_of, *, window: int = WINDOW, bounds: Bounds | None = None
) -> tuple[CurvePoint, ...]:
    """Return a point for each step there is; ``bounds`` are the least and the greatest value, None for unknown."""
    by_step: dict[int, list[LedgerSample]] = defaultdict(list)
    for sample in samples:
        by_step[sample.step].append(sample)
    steps = sorted(by_step)
    points = []
    for place, step in enumerate(steps):
        near = [sample for one in steps[max(0, place - window + 1) : place + 1] for sample in by_step[one]]
        ungraded = sum(sample.reward is None for sample in by_step[step])
        points.append(
            CurvePoint(step, compute_mean(by_step[step], value, bounds), compute_mean(near, value, bounds), ungraded)
        )
    return tuple(points)


def split_ends(samples: Sequence[LedgerSample], window: int = WINDOW) -> tuple[list[LedgerSample], list[LedgerSample]]:
    """Return the samples of the first and of the last ``window`` steps; of half the steps each where there are
    fewer.
    """
    steps = sorted({sample.step for sample in samples})
    size = min(window, len(steps) // 2)
    first, last = set(steps[:size]), set(steps[len(steps) - size :])
    return [one for one in samples if one.step in first], [one for one in samples if one.step in last]


def compute_change(
    first: Iterable[LedgerSample],
    last: Iterable[LedgerSample],
    value: Value = reward_of,
    bounds: tuple[Bounds | None, Bounds | None] = (None, None),
) -> Change | None:
    """Return how ``last`` differs from ``first``; None where either has no graded sample.

    The interval of the difference is Student's t over the tasks that both have, or Welch's (1947) over the tasks of
    each, of which each must have ``UNPAIRED`` at least: how hard the tasks of a few prompts happen to be is no change.
    ``bounds`` of the values of both.
    """
    first, last = list(first), list(last)
    alike = find_clusters([*first, *last])
    before, after = compute_task_means(first, value), compute_task_means(last, value)
    if not before or not after:
        return None
    common = [task for task in before if task in after]
    values = make_independent(before, alike), make_independent(after, alike)
    sides = compute_mean_of(values[0], bounds[0]), compute_mean_of(values[1], bounds[1])
    limits = find_difference_bounds(*bounds)
    if len(common) >= PAIRED_FROM:
        return Change(
            *sides,
            compute_mean_of(make_independent({task: after[task] - before[task] for task in common}, alike), limits),
            len(common),
        )
    return Change(*sides, clip_interval(_compute_welch(*values), limits), 0)


def compute_task_means(samples: Iterable[LedgerSample], value: Value = reward_of) -> dict[tuple[str, str], float]:
    """Return the mean of each task over its graded samples."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in samples:
        if (known := value(sample)) is not None:
            found[sample.task].append(known)
    return {task: sum(values) / len(values) for task, values in found.items()}


def find_clusters(samples: Iterable[LedgerSample]) -> dict[tuple[str, str], str]:
    """Return the cluster of each task that shares one with others."""
    return {sample.task: sample.cluster for sample in samples if sample.cluster}


def make_independent(values: Mapping[tuple[str, str], float], clusters: Mapping[tuple[str, str], str]) -> list[float]:
    """Return values by task as ones that do not depend on one another: one for each cluster, with the same mean."""
    alike: Mapping[tuple[str, str], Hashable] = clusters
    codes = encode_names(alike.get(task, task) for task in values)
    return [float(value) for value in group_by_cluster(np.array(list(values.values())), codes)]


def compute_mean_of(values: Sequence[float], bounds: Bounds | None = None, floor: float = 0.0) -> Metric:
    """Return the mean of at least one independent value with Student's t interval; none for a single one.

    Args:
        values: shape (n,).
        bounds: the least and the greatest value, None for unknown; the interval keeps to them.
        floor: the variance of one value that is known to be there, however alike these happen to be.
    """
    n, center = len(values), float(np.mean(values))
    if n < 2:
        return Metric(center, None, None, n)
    variance = max(float(np.var(values, ddof=1)), floor)
    if variance < SAME**2:
        return clip_interval(compute_tied(center, n, bounds), bounds)
    half = compute_t975(n - 1) * math.sqrt(variance / n)
    return clip_interval(Metric(center, center - half, center + half, n), bounds)


def _compute_welch(before: Sequence[float], after: Sequence[float]) -> Metric:
    center, n = float(np.mean(after) - np.mean(before)), len(before) + len(after)
    if min(len(before), len(after)) < UNPAIRED:
        return Metric(center, None, None, n)
    parts = [float(np.var(side, ddof=1)) / len(side) for side in (before, after)]
    if sum(parts) < SAME**2:
        return Metric(center, None, None, n)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True)
    )
    half = compute_t975(max(1, int(freedom))) * math.sqrt(sum(parts))
    return Metric(center, center - half, center + half, n)


def summarize_reward(
    samples: Sequence[LedgerSample], window: int = WINDOW, bounds: tuple[float, float] | None = None
) -> list[str]:
    """Say in words what became of the reward of a run; ``bounds`` are its least and greatest value, None where they are
    not known.
    """
    steps = {sample.step for sample in samples}
    found = compute_change(*split_ends(samples, window), bounds=(bounds, bounds)) if len(steps) > 1 else None
    if found is None:
        return ["the reward of two steps or more is needed to say whether it moved"]
    size = min(window, len(steps) // 2)
    low, high = found.difference.low, found.difference.high
    how = f"paired by {found.paired} tasks" if found.paired else "not paired: the ends have too few tasks in common"
    which = "step" if size == 1 else f"{size} steps"
    lines = [f"mean reward: first {which} {format_metric(found.first)}, last {which} {format_metric(found.last)}"]
    if low is None or high is None:
        why = (
            "too few tasks for an interval"
            if found.paired == 0
            else f"equal in all {found.paired} tasks, which gives no interval"
        )
        return [*lines, f"change {found.difference.value:+.3f} ({how}); {why}"]
    verdict = "beyond noise" if low > 0 or high < 0 else "within noise: its interval holds 0"
    return [*lines, f"change {found.difference.value:+.3f} [{low:+.3f}, {high:+.3f}] ({how}, 95 %): {verdict}"]


def format_metric(metric: Metric) -> str:
    """Return a figure with its interval: ``0.412 [0.300, 0.524]``."""
    return f"{metric.value:.3f}" + ("" if metric.low is None else f" [{metric.low:.3f}, {metric.high:.3f}]")


def list_labels(samples: Iterable[LedgerSample]) -> list[str]:
    """Return the labels of graded samples, sorted."""
    return sorted({sample.label for sample in samples if sample.reward is not None and sample.label})


def list_components(sides: Sequence[Iterable[LedgerSample]]) -> list[str]:
    """Return the components that every one of several sets of samples has, sorted."""
    names = [{name for sample in side for name in (sample.components or {})} for side in sides]
    return sorted(set.intersection(*names)) if names else []


def count_ungraded(samples: Iterable[LedgerSample]) -> Mapping[str, int]:
    """Return how many samples were not graded, by kind of failure."""
    found: dict[str, int] = defaultdict(int)
    for sample in samples:
        if sample.failure is not None:
            found[sample.failure] += 1
    return dict(found)
