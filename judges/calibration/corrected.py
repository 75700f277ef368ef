"""A share that a judge counted, corrected by the labels of people on a random part of it.

Two estimates of the same share, each with a 95 % interval:

- **Prediction-powered** (Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023, "Prediction-powered inference",
  Science 382): the judge's share over all rows, plus the mean difference of people and judge over the labelled ones.
  The difference of two labels is -1, 0 or 1, and its interval adds half a row to each way they may differ (Agresti and
  Min 2005), without which a handful of differences proves too much.
- **Rogan and Gladen** (1978): what share gives the judge's share of the rows that nobody labelled, at its sensitivity
  and specificity. The interval is that of Lang and Reiczigel (2014), which knows that both were measured on few rows.

Both hold for labelled rows that were drawn at random from the others; not for rows that were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gavel.judges.calibration.statistics import Interval
from gavel.models.codec import record

Z = 1.959964


@record
class CorrectedShare:
    """The share of a label: as the judge counted it over ``n`` rows, and both corrections by ``labelled`` of them."""

    label: str
    judged: float
    n: int
    labelled: int
    powered: Interval
    rogan_gladen: Interval


def correct_share(
    judged: Sequence[str], people: Sequence[tuple[str, str]], label: str, *, deviation: float = 1.0
) -> CorrectedShare:
    """Return the corrected share of a label.

    Args:
        judged: the judge's label of every row, the labelled ones included; at least one.
        people: (the judge's label, people's label) of each labelled row.
        label: whose share it is.
        deviation: the variance of the judge's share in units of that of independent rows: above 1 where rows are alike.
    """
    hits = np.array([one == label for one in judged], dtype=np.float64)
    pairs = np.array([(one == label, other == label) for one, other in people], dtype=np.float64).reshape(-1, 2)
    share, n = float(hits.mean()), len(hits)
    powered = _correct_by_difference(share, n, pairs, deviation)
    others, rest = n - len(pairs), share
    if others > 0:  # those that nobody labelled: then they and the judge's errors are measured on different rows
        rest = min(1.0, max(0.0, (share * n - float(pairs[:, 0].sum())) / others))
    return CorrectedShare(
        label, share, n, len(pairs), powered, _correct_by_errors(rest, max(others, 1), pairs, deviation)
    )


def _correct_by_difference(share: float, n: int, pairs: npt.NDArray[np.float64], deviation: float) -> Interval:
    count = len(pairs)
    if not count:
        return Interval(None, None, None, 0)
    missed = float(np.sum((pairs[:, 0] == 0) & (pairs[:, 1] == 1)))
    invented = float(np.sum((pairs[:, 0] == 1) & (pairs[:, 1] == 0)))
    size = count + 2
    center = (missed - invented) / size
    variance = ((missed + invented + 1) / size - center**2) / size
    shared = float(
        np.mean((pairs[:, 0] - pairs[:, 0].mean()) * (pairs[:, 1] - pairs[:, 0]))
    )  # labelled rows are in both
    variance += (deviation * max(share * (1 - share), 1 / (n + 4)) + 2 * min(shared, 0.0)) / n
    half = Z * math.sqrt(variance)
    value = min(1.0, max(0.0, share + (missed - invented) / count))
    low, high = max(0.0, share + center - half), min(1.0, share + center + half)
    return Interval(value, min(low, value), max(high, value), count)


def _correct_by_errors(share: float, n: int, pairs: npt.NDArray[np.float64], deviation: float) -> Interval:
    right, wrong = pairs[pairs[:, 1] == 1, 0], pairs[pairs[:, 1] == 0, 0]
    count = len(pairs)
    if not len(right) or not len(wrong):
        return Interval(None, None, None, count)
    sensitivity, specificity = float(right.mean()), 1 - float(wrong.mean())
    if sensitivity + specificity <= 1:
        return Interval(None, None, None, count)  # such a judge says nothing of the share
    value = min(1.0, max(0.0, (share + specificity - 1) / (sensitivity + specificity - 1)))
    rows = n / deviation
    q, rows = (rows * share + Z**2 / 2) / (rows + Z**2), rows + Z**2
    sure, true = len(right), len(wrong)
    se, sp = (sure * sensitivity + 1) / (sure + 2), (true * specificity + 1) / (true + 2)
    power = se + sp - 1
    if power <= 0:
        return Interval(value, 0.0, 1.0, count)
    center = (q + sp - 1) / power
    spread_se, spread_sp = se * (1 - se) / (sure + 2), sp * (1 - sp) / (true + 2)
    shift = 2 * Z**2 * (center * spread_se - (1 - center) * spread_sp)
    variance = (q * (1 - q) / rows + center**2 * spread_se + (1 - center) ** 2 * spread_sp) / power**2
    half = Z * math.sqrt(variance)
    low, high = (min(1.0, max(0.0, center + shift + side * half)) for side in (-1, 1))
    return Interval(value, min(low, value), max(high, value), count)
