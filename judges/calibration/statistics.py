"""Agreement between two raters over nominal labels, from confusion tables, with intervals from a cluster bootstrap.

A table ``t`` of shape (..., k, k) counts items by true label (row) and judged label (column); leading axes are
bootstrap draws.
Sources: Cohen 1960 for kappa; Gwet 2008 for AC1; Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", for
alpha with two raters and no missing values; Efron and Tibshirani 1993, chapter 13, for the percentile interval.
Clusters (all answers to one question) are drawn whole, since answers to one question are not independent. Few clusters
give too narrow a bootstrap: the interval of accuracy is Wilson's over clusters (``gavel.models.statistics``), and those
of kappa and alpha reach at least as far as it makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from gavel.models.codec import record
from gavel.models.statistics import Floats, compute_clustered_mean, encode_names

Tables = npt.NDArray[np.int64] | Floats
Statistic = Callable[[Tables], Floats]

DRAWS = 2_000
"""Bootstrap draws: the ends of a 95 % interval then rest on 50 draws each."""


@record
class Interval:
    """A figure with its 95 % interval over ``n`` items; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def _divide(above: Floats, below: Floats) -> Floats:
    quotient: Floats = np.full(np.broadcast(above, below).shape, np.nan)
    np.divide(above, below, out=quotient, where=below > 0)
    return quotient


def compute_kappa(tables: Tables) -> Floats:
    """Return (p_o - p_e) / (1 - p_e); NaN where chance alone would agree always (one label only) or the table is
    empty.
    """
    total = tables.sum(axis=(-2, -1)).astype(np.float64)
    observed = _divide(np.trace(tables, axis1=-2, axis2=-1).astype(np.float64), total)
    expected = _divide((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1).astype(np.float64), total**2)
    return _divide(observed - expected, 1 - expected)


def compute_ac1(tables: Tables) -> Floats:
    """Return Gwet's AC1, (p_o - p_e) / (1 - p_e) with p_e = sum_k q_k (1 - q_k) / (k - 1) and q_k the mean of the two
    raters' shares of label k (Gwet 2008); NaN for an empty table or fewer than two labels.
    """
    size = tables.shape[-1]
    total = tables.sum(axis=(-2, -1)).astype(np.float64)
    if size < 2:
        return np.full(total.shape, np.nan)
    observed = _divide(np.trace(tables, axis1=-2, axis2=-1).astype(np.float64), total)
    shares = _divide((tables.sum(axis=-1) + tables.sum(axis=-2)).astype(np.float64), 2 * total[..., None])
    expected = (shares * (1 - shares)).sum(axis=-1) / (size - 1)
    return _divide(observed - expected, 1 - expected)


def compute_alpha(tables: Tables) -> Floats:
    """Return alpha for nominal labels: 1 - (n - 1) (n - sum o_cc) / (n^2 - sum n_c^2) over the n = 2 x items paired
    values.
    """
    coincidences = tables + np.swapaxes(tables, -2, -1)
    marginals = coincidences.sum(axis=-1).astype(np.float64)
    n = marginals.sum(axis=-1)
    disagreeing = n - np.trace(coincidences, axis1=-2, axis2=-1)
    return 1 - _divide((n - 1) * disagreeing, n**2 - (marginals**2).sum(axis=-1))


def count_confusion(truth: Sequence[int], judged: Sequence[int], size: int) -> Tables:
    """Return the table of shape (size, size): rows are true labels, columns judged ones."""
    codes = np.asarray(truth, dtype=np.int64) * size + np.asarray(judged, dtype=np.int64)
    return np.bincount(codes, minlength=size * size).reshape(size, size).astype(np.int64)


def draw_tables(
    truth: Sequence[int],
    judged: Sequence[int],
    clusters: Sequence[Hashable],
    size: int,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Tables:
    """Draw clusters with replacement, as many as there are; return the confusion table of each draw, shape (draws,
    size, size).
    """
    index: dict[Hashable, int] = {}
    rows = np.asarray([index.setdefault(cluster, len(index)) for cluster in clusters], dtype=np.int64)
    count = len(index)
    codes = (rows * size + np.asarray(truth, dtype=np.int64)) * size + np.asarray(judged, dtype=np.int64)
    per_cluster = np.bincount(codes, minlength=count * size * size).reshape(count, size * size)
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)
    return (weights @ per_cluster).reshape(draws, size, size).astype(np.int64)


def compute_accuracy_interval(truth: Sequence[int], judged: Sequence[int], clusters: Sequence[Hashable]) -> Interval:
    """Return the share of items whose two labels are equal; no ends for a single cluster, no figure without items."""
    if not len(truth):
        return Interval(None, None, None, 0)
    hits = np.asarray(truth) == np.asarray(judged)
    value, ends = compute_clustered_mean(hits.astype(np.float64), encode_names(clusters), bounded=True)
    low, high = ends or (None, None)
    return Interval(value, low, high, len(truth))


def compute_interval(statistic: Statistic, table: Tables, drawn: Tables, agreement: Interval) -> Interval:
    """Return kappa or alpha of a table, with its interval.

    The ends are those of the percentile interval, or further out where the table would give more or less if it agreed
    as often as the ends of ``agreement`` say: a handful of right answers, of which no draw can hold a wrong one, proves
    little.

    Args:
        statistic: ``compute_kappa`` or ``compute_alpha``.
        table: shape (k, k).
        drawn: shape (draws, k, k); draws in which the statistic is not defined do not count.
        agreement: from ``compute_accuracy_interval``; without ends the figure has none.
    """
    value, n = float(statistic(table)), int(table.sum())
    if not np.isfinite(value):
        return Interval(None, None, None, n)
    if agreement.low is None or agreement.high is None:
        return Interval(value, None, None, n)
    values = statistic(drawn)
    values = values[np.isfinite(values)]
    ends = [value, *(float(statistic(_make_agreeing(table, share))) for share in (agreement.low, agreement.high))]
    if len(values):
        ends += [float(end) for end in np.quantile(values, (0.025, 0.975))]
    known = [end for end in ends if np.isfinite(end)]
    return Interval(value, min(known), max(known), n)


def _make_agreeing(table: Tables, share: float) -> Floats:
    """Return the table with verdicts changed until ``share`` of them agree; each row (true label) keeps its count.

    Verdicts that become wrong go to the other true labels as their shares say; where there is only one, they stay.
    """
    counts: Floats = table.astype(np.float64)
    right: Floats = np.diagonal(counts).copy()
    wrong, agreeing, target = counts - np.diag(right), float(right.sum()), share * float(counts.sum())
    if target >= agreeing:
        moved = wrong * ((target - agreeing) / max(float(wrong.sum()), 1e-300))
        better: Floats = counts - moved + np.diag(moved.sum(axis=1))
        return better
    others = np.tile(counts.sum(axis=1), (len(counts), 1)) * (1 - np.eye(len(counts)))
    lost = np.where(others.sum(axis=1) > 0, right * (1 - target / agreeing), 0.0)
    worse: Floats = counts - np.diag(lost) + lost[:, None] * others / np.maximum(others.sum(axis=1), 1e-300)[:, None]
    return worse
