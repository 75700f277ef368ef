"""``/aggregate_metrics``: the environment's own figures with intervals beside the statistics that Gym's tools expect.

Masked rows are in no figure; how many there were stands in ``coverage/…`` under Gym's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gavel.envs.interfaces.nemo_gym.baseline import (
    ROLLOUT,
    Row,
    compute_across_repeats,
    compute_overall,
    group_by_repeat,
    group_by_task,
    read_rollout_index,
    read_task_index,
)
from gavel.envs.types import Result, Summary
from gavel.models.codec import decode
from gavel.models.errors import RecordError

RESULT = "gavel_result"
"""The field of a reply that holds its result, the transcript left out."""

_PASS_AT = re.compile(r"/pass@\d+")

Summarize = Callable[[Sequence[Result]], Summary]


def aggregate_rows(rows: Sequence[Row], summarize: Summarize | None) -> dict[str, Any]:
    """Return ``{agent_metrics, key_metrics, group_level_metrics, repeat_level_metrics}``.

    Args:
        rows: replies of ``/verify`` or ``/run`` with the collector's indices; bulky fields may be missing.
        summarize: the environment's; it gets the results of the rows that bring theirs. None: no figures of ours.
    """
    measured = [row for row in rows if not row.get("mask_sample")]
    coverage = _measure_coverage(rows, measured)
    if not measured:
        return _make_reply(dict(coverage), dict(coverage), [], [])
    own = _summarize_rows(rows, summarize)
    repeats = group_by_repeat(measured)
    names = [name for name in repeats[0] if name.startswith("mean/")] if repeats else []
    for repeat in repeats:
        repeat |= _list_points(
            _summarize_rows([row for row in rows if read_rollout_index(row) == repeat[ROLLOUT]], summarize)
        )
    agent = {
        **compute_overall(measured),
        **compute_across_repeats(repeats, [*names, *_list_points(own)] if repeats else []),
        **coverage,
        **_list_figures(own),
        "num_repeats": len({read_rollout_index(row) for row in rows}),
    }
    key = {name: value for name, value in agent.items() if name.startswith("mean/")} | _pick_headline(own) | coverage
    return _make_reply(agent, key, group_by_task(measured), repeats)


def _make_reply(
    agent: Mapping[str, Any],
    key: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    repeats: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {"agent_metrics": agent, "key_metrics": key, "group_level_metrics": groups, "repeat_level_metrics": repeats}


def _measure_coverage(rows: Sequence[Row], measured: Sequence[Row]) -> dict[str, int]:
    if len(measured) == len(rows):
        return {}
    tasks, seen = {read_task_index(row) for row in rows}, {read_task_index(row) for row in measured}
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": len(rows) - len(measured),
        "coverage/measured_tasks": len(seen),
        "coverage/fully_masked_tasks": len(tasks - seen),
    }


def _summarize_rows(rows: Sequence[Row], summarize: Summarize | None) -> Summary:
    results = [result for row in rows if (result := _read_result(row)) is not None] if summarize else []
    return summarize(results) if summarize and results else Summary({}, {})


def _read_result(row: Row) -> Result | None:
    raw = row.get(RESULT)
    if not isinstance(raw, Mapping):
        return None
    try:
        return replace(decode(Result, raw), rollout_index=read_rollout_index(row))
    except (RecordError, ValueError):  # written by another version: Gym's statistics still count the row
        return None


def _list_points(summary: Summary) -> dict[str, float]:
    return {name: metric.value for name, metric in summary.metrics.items()}


def _pick_headline(summary: Summary) -> dict[str, float]:
    """Return the figures over all rows, not those of slices."""
    return {name: value for name, value in _list_points(summary).items() if "@" not in _PASS_AT.sub("", name)}


def _list_figures(summary: Summary) -> dict[str, float]:
    made: dict[str, float] = {}
    for name, metric in summary.metrics.items():
        made[name] = metric.value
        if metric.low is not None and metric.high is not None:
            made |= {f"{name}/ci_low_95": metric.low, f"{name}/ci_high_95": metric.high}
    return made
