"""Reward curves as pictures; without matplotlib (extra ``report`` or ``smoke``) there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.launch.comparing.curves import WINDOW, CurvePoint, Value, make_curve, reward_of
from gavel.launch.comparing.ledgers import LedgerSample

CURVE = "curve.svg"
_COLOURS = (
    "tab:blue",
    "tab:orange",
    "tab:green",
    "tab:red",
    "tab:purple",
    "tab:brown",
    "tab:pink",
    "tab:gray",
    "tab:olive",
    "tab:cyan",
)


def draw_runs(
    path: Path,
    runs: Mapping[str, Sequence[LedgerSample]],
    *,
    groups: Mapping[str, str] | None = None,
    value: Value = reward_of,
    what: str = "mean reward",
    window: int = WINDOW,
) -> bool:
    """Draw runs into one picture (the suffix says which form) and say whether that was possible.

    Of a run alone each step's mean is drawn, too, and the band is its 95 % interval over tasks; runs of one group have
    one colour.

    Args:
        path: where to.
        runs: samples by name.
        groups: the group of each run; None: each is its own.
        value: what is drawn.
        what: its name.
        window: steps of the moving mean.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return False
    curves = {name: points for name, samples in runs.items() if (points := make_curve(samples, value, window=window))}
    if not curves:
        return False
    named = [(groups or {}).get(name, name) for name in curves]
    colours = {group: _COLOURS[place % len(_COLOURS)] for place, group in enumerate(dict.fromkeys(named))}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gavel"}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        seen: set[str] = set()
        for group, points in zip(named, curves.values(), strict=True):
            _draw_line(axes, points, colours[group], "" if group in seen else group, alone=len(curves) == 1)
            seen.add(group)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(f"{what} (mean of {window} steps)")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="best", fontsize="small")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return True


def _draw_line(axes: Any, points: Sequence[CurvePoint], colour: str, label: str, *, alone: bool) -> None:
    smooth = [(point.step, point.smooth) for point in points if point.smooth is not None]
    axes.plot(
        [step for step, _ in smooth],
        [metric.value for _, metric in smooth],
        color=colour,
        linewidth=2,
        label=label or None,
    )
    if not alone:
        return
    each = [(point.step, point.mean.value) for point in points if point.mean is not None]
    axes.plot([step for step, _ in each], [value for _, value in each], "o", color=colour, alpha=0.4, markersize=4)
    band = [(step, metric.low, metric.high) for step, metric in smooth if metric.low is not None]
    axes.fill_between(
        *([list(column) for column in zip(*band, strict=True)] if band else [[], [], []]), color=colour, alpha=0.15
    )
