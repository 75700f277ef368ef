"""95 % intervals of means over rows that come in clusters: pure parts for the agreement of judges and the metrics of
environments.

Rows of one cluster (the rollouts of a task, the answers to a question) are alike, so an interval that takes them as
independent is too narrow. The variance here is the cluster-robust one (Liang and Zeger 1986): with m the mean of n
rows, C the clusters, and e_c the sum over cluster c of (value - m),

    v = C / (C - 1) * sum_c e_c^2 / n^2,   but at least the variance of as many independent rows.

A figure bounded to [0, 1] gets the Wilson interval (Wilson 1927) at the effective sample size m (1 - m) / v (Korn and
Graubard 1998), so that it never leaves its bounds, and not even at 0 or 1 is it a point: where v is 0, the effective
size is C. An unbounded figure gets m +- t sqrt(v). Both use Student's t at C - 1 degrees of freedom. With a single
cluster nothing can be said.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
_Z975 = 1.959964


def encode_names(names: Iterable[Hashable]) -> Codes:
    """Return an integer from 0 up for each name, equal for equal names, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.fromiter((seen.setdefault(name, len(seen)) for name in names), dtype=np.int64)


def compute_clustered_mean(
    values: Floats, clusters: Codes, *, bounded: bool
) -> tuple[float, tuple[float, float] | None]:
    """Return the mean and its interval; None for the interval where there is a single cluster.

    Args:
        values: shape (rows,), at least one row; in [0, 1] where ``bounded``.
        clusters: shape (rows,), from ``encode_names``.
        bounded: whether the mean cannot leave [0, 1].
    """
    value, variance, count = _compute_clustered(values, clusters)
    return value, _compute_interval(value, variance, count, bounded=bounded)


def _compute_clustered(values: Floats, clusters: Codes) -> tuple[float, float, int]:
    """Return the mean, its variance and the number of clusters."""
    n, center = len(values), float(values.mean())
    sizes = np.bincount(clusters)
    count = int(np.count_nonzero(sizes))
    if count < 2:
        return center, 0.0, count
    sums = np.bincount(clusters, weights=values - center)
    robust = count / (count - 1) * float(sums @ sums) / n**2
    return center, max(robust, float(values.var()) / n), count


def _compute_interval(value: float, variance: float, clusters: int, *, bounded: bool) -> tuple[float, float] | None:
    if clusters < 2:
        return None
    t = compute_t975(clusters - 1)
    if not bounded:
        half = t * math.sqrt(variance)
        return value - half, value + half
    return compute_wilson(value, value * (1 - value) / variance if variance > 0 else clusters, t)


def compute_wilson(share: float, n: float, quantile: float = _Z975) -> tuple[float, float]:
    """Return Wilson's score interval of a share seen in ``n`` (effective) rows, within [0, 1] and holding ``share``."""
    z2 = quantile**2 / n
    center = (share + z2 / 2) / (1 + z2)
    half = quantile * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return max(0.0, min(share, center - half)), min(1.0, max(share, center + half))


def compute_t975(df: int) -> float:
    """Return Student's t quantile at 0.975: a table to 9 degrees of freedom, then Abramowitz and Stegun 26.7.5 (error
    under 2e-4).
    """
    if df <= len(_T975):
        return _T975[df - 1]
    z = _Z975
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / df + g2 / df**2 + g3 / df**3
