"""Paired comparison of runs: differences by task with clustered bootstrap intervals, McNemar's test for labels.

Two runs of the same tasks differ by task far less than their means suggest, so everything here is paired: a task that
only one of two runs has graded is left out of their pair and counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gavel.envs.statistics import Codes, compute_t975, encode_names, find_cluster
from gavel.envs.types import Metric, Result
from gavel.models.codec import record

LEAST = 5
"""Tasks under which there is no interval: two or three that happen to agree would claim certainty."""
FEW = 15
"""Tasks under which no bootstrap is made: at 8 tasks of one row its interval covers the truth in 88 %, Student's t in
95 %.
"""
SAME = 1e-12
"""Values that differ by less are equal: rounding is no spread."""
Bounds = tuple[float, float]
Row = tuple[str, str, int]
"""(task_id, task_digest, rollout_index): what makes two rows of two runs a pair."""
Unit = tuple[str, str]
"""(task_id, task_digest)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One run: the reward and the label of each graded row, and how many planned rows it did not grade. ``clusters``:
    by task, where several tasks are alike; a task without one is its own."""

    name: str
    rewards: Mapping[Row, float]
    labels: Mapping[Row, str]
    components: Mapping[Row, Mapping[str, float]]
    ungraded: int
    bounds: Bounds | None = None
    clusters: Mapping[Unit, str] = field(default_factory=dict)
    clustered_by: str | None = None


def make_arm(
    name: str, results: Iterable[Result], planned: int, bounds: Bounds | None = None, clusters: str | None = None
) -> Arm:
    """Collect a run's graded rows; ``bounds`` of its rewards, None where they are not known. ``clusters``: the field
    whose value tasks share that are alike (``EnvironmentInfo.clusters``)."""
    graded = {(row.task_id, row.task_digest, row.rollout_index): row for row in results if row.reward is not None}
    return Arm(
        name,
        {key: row.reward.value for key, row in graded.items() if row.reward is not None},
        {key: row.outcome.label for key, row in graded.items()},
        {key: row.reward.components for key, row in graded.items() if row.reward is not None},
        planned - len(graded),
        bounds,
        {key[:2]: find_cluster(row, clusters) for key, row in graded.items()} if clusters else {},
        clusters,
    )


@record
class Difference:
    """``other`` less ``base`` over the tasks both graded.

    ``metric``: mean difference with its 95 % interval over ``n`` tasks (see ``compute_bootstrap``), for labels within
    [-1, 1]; where tasks come in clusters, ``n`` counts these. ``p`` of McNemar's exact test for labels where each task
    has one row and is no other's like (None otherwise, and for rewards); ``p_holm`` adjusts it for all tests of the
    comparison (Holm 1979).
    """

    what: str
    base: str
    other: str
    base_mean: float
    other_mean: float
    metric: Metric
    p: float | None = None
    p_holm: float | None = None


@record
class Comparison:
    """What a comparison found: ``tasks`` by run (graded), ``unpaired`` tasks by run left out of its pair with the base;
    ``clusters`` is what intervals are clustered by, None for the task."""

    base: str
    tasks: Mapping[str, int]
    ungraded: Mapping[str, int]
    unpaired: Mapping[str, int]
    differences: tuple[Difference, ...]
    clusters: str | None = None


def compare_arms(arms: Sequence[Arm], *, draws: int = 10_000, seed: int = 0) -> Comparison:
    """Compare each arm with the first.

    Args:
        arms: at least two, names distinct.
        draws: bootstrap draws.
        seed: of the bootstrap; the same numbers for the same runs.
    """
    base, found, unpaired = arms[0], [], {}
    for other in arms[1:]:
        found += list(_compare_pair(base, other, draws, np.random.default_rng(seed)))
        ours, theirs = ({key[:2] for key in side.rewards} for side in (base, other))
        unpaired[other.name] = len(ours ^ theirs)
    return Comparison(
        base.name,
        {side.name: len({key[:2] for key in side.rewards}) for side in arms},
        {side.name: side.ungraded for side in arms},
        unpaired,
        tuple(_adjust_p_values(found)),
        base.clustered_by,
    )


def _compare_pair(base: Arm, other: Arm, draws: int, draw: np.random.Generator) -> Iterable[Difference]:
    yield _compute_difference("reward", base, other, base.rewards, other.rewards, draws, draw)
    names = sorted({name for side in (base, other) for parts in side.components.values() for name in parts})
    for name in names:
        left, right = (
            {key: values.get(name, 0.0) for key, values in side.components.items()} for side in (base, other)
        )
        yield _compute_difference(f"reward/{name}", base, other, left, right, draws, draw)
    for label in sorted({*base.labels.values(), *other.labels.values()}):
        left, right = ({key: float(found == label) for key, found in side.labels.items()} for side in (base, other))
        yield _compute_difference(f"label/{label}", base, other, left, right, draws, draw, binary=True)


def _compute_difference(
    what: str,
    base: Arm,
    other: Arm,
    left: Mapping[Row, float],
    right: Mapping[Row, float],
    draws: int,
    draw: np.random.Generator,
    *,
    binary: bool = False,
) -> Difference:
    first, second = _group_by_task(left), _group_by_task(right)
    tasks = [task for task in first if task in second]
    means = np.array([[np.mean(side[task]) for task in tasks] for side in (first, second)]).reshape(2, len(tasks))
    limits = (-1.0, 1.0) if binary else find_difference_bounds(base.bounds, other.bounds) if what == "reward" else None
    clusters = encode_names("\0".join(task) if task not in base.clusters else base.clusters[task] for task in tasks)
    metric = clip_interval(
        compute_bootstrap(group_by_cluster(means[1] - means[0], clusters), draws, draw, limits), limits
    )
    single = len(set(clusters)) == len(tasks) and all(len(first[task]) == len(second[task]) == 1 for task in tasks)
    return Difference(
        what,
        base.name,
        other.name,
        _compute_mean(means[0]),
        _compute_mean(means[1]),
        metric,
        compute_mcnemar(means[0] > 0.5, means[1] > 0.5) if binary and single and tasks else None,
    )


def _compute_mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan


def group_by_cluster(differences: npt.NDArray[np.float64], clusters: Codes) -> npt.NDArray[np.float64]:
    """Return one value for each cluster, shape (clusters,), whose mean is that of the differences, shape (tasks,), as
    is their spread.

    The value is the overall mean plus the cluster's summed deviation from it, over the average size of a cluster: the
    usual linear form of a ratio (Cochran 1977, 6.3). Where each task is its own cluster it is the task's difference.
    """
    sizes = np.bincount(clusters)
    if len(sizes) == len(differences):
        return differences
    mean = differences.mean()
    values: npt.NDArray[np.float64] = mean + np.bincount(clusters, weights=differences - mean) / sizes.mean()
    return values


def _group_by_task(values: Mapping[Row, float]) -> dict[Unit, list[float]]:
    tasks: dict[Unit, list[float]] = defaultdict(list)
    for (task_id, digest, _), value in values.items():
        tasks[task_id, digest].append(value)
    return tasks


def find_difference_bounds(base: Bounds | None, other: Bounds | None) -> Bounds | None:
    """Return the least and the greatest difference of two bounded figures, None where one is not known to be
    bounded.
    """
    return None if base is None or other is None else (other[0] - base[1], other[1] - base[0])


def compute_tied(value: float, n: int, bounds: Bounds | None) -> Metric:
    """Return the interval of ``n`` values that are all equal, which is no point: others of the kind may still differ.

    With 97.5 % confidence on either side at most 1 - 0.025^(1/n) of them do (Clopper and Pearson 1934), each by half of
    the bounded range at most. Without bounds, or with under ``LEAST`` values, nothing can be said.
    """
    if bounds is None or n < LEAST:
        return Metric(value, None, None, n)
    half = (1 - 0.025 ** (1 / n)) * (bounds[1] - bounds[0]) / 2
    return Metric(value, value - half, value + half, n)


def compute_bootstrap(
    differences: npt.NDArray[np.float64], draws: int, draw: np.random.Generator, bounds: Bounds | None = None
) -> Metric:
    """Return the mean of per-task differences, shape (tasks,), with the 95 % expanded percentile interval of a
    bootstrap over tasks.

    The percentiles of plain bootstrap means are too narrow for few tasks: resampled values spread by (n - 1) / n less,
    and nothing accounts for the estimated variance. The expanded ones (Hesterberg 2015, arXiv:1411.5279) are as wide as
    Student's t interval and keep the bootstrap's skew. Under ``FEW`` tasks it is Student's t interval itself, for so
    few do not show the bootstrap enough. Under ``LEAST`` tasks there is no interval; without any the value is NaN.
    Equal differences get that of ``compute_tied``.
    """
    count = len(differences)
    if count < LEAST:
        return Metric(_compute_mean(differences), None, None, count)
    if float(np.ptp(differences)) < SAME:
        return compute_tied(_compute_mean(differences), count, bounds)
    if count < FEW:
        half = compute_t975(count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
        return Metric(
            _compute_mean(differences), _compute_mean(differences) - half, _compute_mean(differences) + half, count
        )
    means = np.concatenate(
        [
            differences[draw.integers(0, count, (part, count))].mean(axis=1)
            for part in _split_total(draws, max(1, 2_000_000 // count))
        ]
    )
    tail = 100 * NormalDist().cdf(-math.sqrt(count / (count - 1)) * compute_t975(count - 1))
    low, high = np.percentile(means, (tail, 100 - tail))
    return Metric(_compute_mean(differences), float(low), float(high), count)


def choose_method(tasks: int) -> str | None:
    """Name the kind of interval that so many tasks get, None for none."""
    return None if tasks < LEAST else "Student's t" if tasks < FEW else "bootstrap"


def clip_interval(metric: Metric, bounds: Bounds | None) -> Metric:
    """Return the metric with its interval cut to what is possible; as it is where ``bounds`` are not known."""
    if metric.low is None or metric.high is None or bounds is None:
        return metric
    low, high = bounds
    return replace(metric, low=min(max(metric.low, low), high), high=max(min(metric.high, high), low))


def _split_total(total: int, size: int) -> Iterable[int]:
    while total > 0:
        yield min(size, total)
        total -= size


def compute_mcnemar(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> float:
    """Return the two-sided exact p of McNemar's test (McNemar 1947): the binomial test of the pairs that changed."""
    gained, lost = int(np.sum(~before & after)), int(np.sum(before & ~after))
    changed = gained + lost
    if changed == 0:
        return 1.0
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return float(min(1.0, 2 * tail / 2**changed))


def _adjust_p_values(differences: Sequence[Difference]) -> list[Difference]:
    """Fill in ``p_holm``."""
    order = sorted((item.p, place) for place, item in enumerate(differences) if item.p is not None)
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[place] = highest
    return [
        Difference(
            item.what, item.base, item.other, item.base_mean, item.other_mean, item.metric, item.p, adjusted.get(place)
        )
        for place, item in enumerate(differences)
    ]
