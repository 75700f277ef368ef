"""Means, ratios and pass@k over rows that come in clusters (the rollouts of one task), each with a 95 % interval.

Rows of one task are alike, so an interval that takes them as independent is too narrow. The variance here is the cluster-robust one
(Liang and Zeger 1986) by linearisation of the ratio sum(a) / sum(b): with R the ratio, C the clusters that have any b, and
e_c the sum over cluster c of (a - R b),

    v = C / (C - 1) * sum_c e_c^2 / (sum b)^2,   but at least the variance of as many independent rows.

A figure bounded to [0, 1] gets the Wilson interval (Wilson 1927) at the effective sample size R (1 - R) / v (Korn and Graubard
1998), so that it never leaves its bounds, and not even at 0 or 1 is it a point: where v is 0, the effective size is C. An unbounded
figure gets R +- t sqrt(v). Both use Student's t at C - 1 degrees of freedom. With a single cluster nothing can be said: low and high
are None. Without rows there is no figure: the functions return None.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gavel.envs.types import Metric

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
_Z975 = 1.959964


def encode(names: Iterable[Hashable]) -> Codes:
    """Return an integer from 0 up for each name, equal for equal names, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.fromiter((seen.setdefault(name, len(seen)) for name in names), dtype=np.int64)


def mean(values: Sequence[float] | Floats, clusters: Codes, *, bounds: tuple[float, float] | None = None) -> Metric | None:
    """Return the mean over rows with its interval; ``bounds`` are the least and greatest possible value, None for unbounded.

    Args:
        values: shape (rows,).
        clusters: shape (rows,), from ``encode``.
        bounds: ``(0, 1)`` for a share, ``(-1, 1)`` for an index.
    """
    return ratio(values, np.ones(len(values)), clusters, bounds=bounds)


def share(hits: Sequence[bool] | npt.NDArray[np.bool_], clusters: Codes, *, of: npt.NDArray[np.bool_] | None = None) -> Metric | None:
    """Return the share of rows that hit, among the rows ``of`` selects (None: all); ``n`` counts these."""
    base = np.ones(len(hits)) if of is None else of.astype(np.float64)
    return ratio(np.asarray(hits, dtype=np.float64) * base, base, clusters, bounds=(0.0, 1.0))


def ratio(
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
        clusters: shape (rows,), from ``encode``.
        bounds: of the ratio; None for unbounded.
    """
    counted = np.asarray(denominators, dtype=np.float64) > 0
    n = int(counted.sum())
    if n == 0:
        return None
    low, high = bounds or (0.0, 1.0)
    values = (np.asarray(numerators, dtype=np.float64)[counted] - low) / (high - low)
    value, variance, count = _clustered(values, clusters[counted])
    scaled = _interval(value, variance, count, bounded=bounds is not None)
    if scaled is None:
        return Metric(low + value * (high - low), None, None, n)
    return Metric(low + value * (high - low), low + scaled[0] * (high - low), low + scaled[1] * (high - low), n)


def _clustered(values: Floats, clusters: Codes) -> tuple[float, float, int]:
    """Return the mean, its variance and the number of clusters."""
    n, center = len(values), float(values.mean())
    sizes = np.bincount(clusters)
    count = int(np.count_nonzero(sizes))
    if count < 2:
        return center, 0.0, count
    sums = np.bincount(clusters, weights=values - center)
    robust = count / (count - 1) * float(sums @ sums) / n**2
    return center, max(robust, float(values.var()) / n), count


def _interval(value: float, variance: float, clusters: int, *, bounded: bool) -> tuple[float, float] | None:
    if clusters < 2:
        return None
    t = t975(clusters - 1)
    if not bounded:
        half = t * math.sqrt(variance)
        return value - half, value + half
    return wilson(value, value * (1 - value) / variance if variance > 0 else clusters, t)


def wilson(share: float, n: float, quantile: float = _Z975) -> tuple[float, float]:
    """Return Wilson's score interval of a share seen in ``n`` (effective) rows, within [0, 1] and holding ``share``."""
    z2 = quantile**2 / n
    center = (share + z2 / 2) / (1 + z2)
    half = quantile * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return max(0.0, min(share, center - half)), min(1.0, max(share, center + half))


def t975(df: int) -> float:
    """Return Student's t quantile at 0.975: a table to 9 degrees of freedom, then Abramowitz and Stegun 26.7.5 (error under 2e-4)."""
    if df <= len(_T975):
        return _T975[df - 1]
    z = _Z975
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / df + g2 / df**2 + g3 / df**3


def pass_at(k: int, passed: npt.NDArray[np.bool_], clusters: Codes) -> Metric | None:
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
    return mean(values, np.arange(len(values)), bounds=(0.0, 1.0))


def consistent(labels: Codes, clusters: Codes) -> Metric | None:
    """Return the share of tasks whose rows all have one label, among the tasks with at least two rows."""
    rows = np.bincount(clusters)
    largest, smallest = np.full(len(rows), -1), np.full(len(rows), np.iinfo(np.int64).max)
    np.maximum.at(largest, clusters, labels)
    np.minimum.at(smallest, clusters, labels)
    several = rows >= 2
    return share((largest == smallest)[several], np.arange(int(several.sum())))
