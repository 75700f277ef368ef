"""Means, ratios and pass@k over rows that come in clusters (the rollouts of one task), each with a 95 % interval.

The intervals are those of ``gavel.models.statistics``; a ratio sum(a) / sum(b), where b is 0 or 1, is the mean of a
over the rows that count. Without rows there is no figure: the functions return None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gavel.envs.types import Metric, Result
from gavel.models.statistics import Codes, Floats, compute_clustered_mean, compute_t975, compute_wilson, encode_names

__all__ = [
    "Codes",
    "Floats",
    "compute_consistency",
    "compute_mean",
    "compute_pass_at",
    "compute_ratio",
    "compute_share",
    "compute_t975",
    "compute_wilson",
    "encode_names",
    "find_cluster",
]


def find_cluster(result: Result, field: str | None) -> str:
    """Return what a row is clustered by: its value of ``field`` (``EnvironmentInfo.clusters``), else its task."""
    value = None if field is None else result.metadata.get(field, (result.outcome.details or {}).get(field))
    return result.task_id if value is None else str(value)


def compute_mean(
    values: Sequence[float] | Floats, clusters: Codes, *, bounds: tuple[float, float] | None = None
) -> Metric | None:
    """Return the mean over rows with its interval; ``bounds`` are the least and greatest possible value, None for
    unbounded.

    Args:
        values: shape (rows,).
        clusters: shape (rows,), from ``encode_names``.
        bounds: ``(0, 1)`` for a share, ``(-1, 1)`` for an index.
    """
    return compute_ratio(values, np.ones(len(values)), clusters, bounds=bounds)


def compute_share(
    hits: Sequence[bool] | npt.NDArray[np.bool_], clusters: Codes, *, of: npt.NDArray[np.bool_] | None = None
) -> Metric | None:
    """Return the share of rows that hit, among the rows ``of`` selects (None: all); ``n`` counts these."""
    base = np.ones(len(hits)) if of is None else of.astype(np.float64)
    return compute_ratio(np.asarray(hits, dtype=np.float64) * base, base, clusters, bounds=(0.0, 1.0))


def compute_ratio(
    numerators: Sequence[float] | Floats,
    denominators: Sequence[float] | Floats,
    clusters: Codes,
    *,
    bounds: tuple[float, float] | None = None,
) -> Metric | None:
    """Return sum(numerators) / sum(denominators) with its interval; None where the denominator is empty.

    Args:
        numerators: shape (rows,).
        denominators: shape (rows,), each 0 or 1: whether the row counts.
        clusters: shape (rows,), from ``encode_names``.
        bounds: of the ratio; None for unbounded.
    """
    counted = np.asarray(denominators, dtype=np.float64) > 0
    n = int(counted.sum())
    if n == 0:
        return None
    low, high = bounds or (0.0, 1.0)
    values = (np.asarray(numerators, dtype=np.float64)[counted] - low) / (high - low)
    value, scaled = compute_clustered_mean(values, clusters[counted], bounded=bounds is not None)
    if scaled is None:
        return Metric(low + value * (high - low), None, None, n)
    return Metric(low + value * (high - low), low + scaled[0] * (high - low), low + scaled[1] * (high - low), n)


def compute_pass_at(k: int, passed: npt.NDArray[np.bool_], clusters: Codes) -> Metric | None:
    """Return the unbiased pass@k (Chen et al. 2021, arXiv:2107.03374): the mean over tasks of 1 - C(n-c, k) / C(n, k).

    Tasks with fewer than ``k`` rows are left out; ``n`` of the metric counts the tasks that are in.
    """
    rows, hits = np.bincount(clusters), np.bincount(clusters, weights=passed).astype(np.int64)
    rows, hits = rows[rows >= k], hits[rows >= k]
    if len(rows) == 0:
        return None
    pairs, which = np.unique(np.stack([rows, hits]), axis=1, return_inverse=True)
    chances = np.array([1 - math.comb(int(n - c), k) / math.comb(int(n), k) for n, c in pairs.T])
    values = chances[which.reshape(-1)]
    return compute_mean(values, np.arange(len(values)), bounds=(0.0, 1.0))


def compute_consistency(labels: Codes, clusters: Codes) -> Metric | None:
    """Return the share of tasks whose rows all have one label, among the tasks with at least two rows."""
    rows = np.bincount(clusters)
    largest, smallest = np.full(len(rows), -1), np.full(len(rows), np.iinfo(np.int64).max)
    np.maximum.at(largest, clusters, labels)
    np.minimum.at(smallest, clusters, labels)
    several = rows >= 2
    return compute_share((largest == smallest)[several], np.arange(int(several.sum())))
