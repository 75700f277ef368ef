"""The statistics that Gym's tools expect of every numeric field of a reply: by task, over all, and by repeat.

Follows what NeMo Gym 0.7.0's reward profiler gives (names, sample standard deviation, linear quantiles, t intervals),
without pandas. Fields of the task, and names that begin with an underscore, are no measurements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gavel.models.statistics import compute_t975

TASK, ROLLOUT = "_ng_task_index", "_ng_rollout_index"
_NO_MEASUREMENT = frozenset(("id", "mask_sample", "should_skip_rollout"))
Row = Mapping[str, Any]
Column = npt.NDArray[np.float64]


def extract_numbers(row: Row) -> dict[str, float]:
    """Return a row's measurements: its top-level numbers, booleans as 0 and 1, and those of ``response.usage``."""
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    found = {**row, **usage} if isinstance(usage, Mapping) else row
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, bool | int | float)
        and not name.startswith("_")
        and name not in _NO_MEASUREMENT
        and math.isfinite(value)
    }


def read_task_index(row: Row) -> int:
    """Return which task a row is of."""
    return _read_index(row.get(TASK))


def read_rollout_index(row: Row) -> int:
    """Return which repeat a row is of."""
    return _read_index(row.get(ROLLOUT))


def _read_index(value: Any) -> int:
    return value if isinstance(value, int) else 0


def compute_overall(rows: Sequence[Row]) -> dict[str, float]:
    """Return mean, max, min, median and std of every measurement over all rows."""
    return _describe_rows([extract_numbers(row) for row in rows])


def group_by_task(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the same of each task, with its rollouts, in the order of the tasks' indices."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[read_task_index(row)].append(row)
    return [_describe_task(index, sorted(groups[index], key=read_rollout_index)) for index in sorted(groups)]


def _describe_task(index: int, rows: Sequence[Row]) -> dict[str, Any]:
    infos = [
        {
            "rollout_id": f"{index}:{read_rollout_index(row)}",
            TASK: index,
            ROLLOUT: read_rollout_index(row),
            **extract_numbers(row),
        }
        for row in rows
    ]
    return {
        TASK: index,
        **_describe_rows([extract_numbers(row) for row in rows]),
        "sample": {"agent_ref": rows[0].get("agent_ref")},
        "num_rollouts": len(rows),
        "expected_num_rollouts": len(rows),
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": infos,
    }


def _describe_rows(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    columns = _collect_columns(rows)
    single = all(len(column) < 2 for column in columns.values())
    made: dict[str, float] = {}
    for name, column in columns.items():
        made |= {
            f"mean/{name}": float(column.mean()),
            f"max/{name}": float(column.max()),
            f"min/{name}": float(column.min()),
            f"median/{name}": float(np.median(column)),
        }
        if len(column) > 1 or (single and len(column) == len(rows)):
            made[f"std/{name}"] = _compute_std(column)
    return made


def _collect_columns(rows: Iterable[Mapping[str, float]]) -> dict[str, Column]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


def _compute_std(column: Column) -> float:
    return float(column.std(ddof=1)) if len(column) > 1 else 0.0


def group_by_repeat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return statistics of each repeat over its tasks; none where there is one repeat only."""
    repeats: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        repeats[read_rollout_index(row)].append(row)
    if len(repeats) < 2:
        return []
    tasks = len({read_task_index(row) for row in rows})
    return [_describe_repeat(index, repeats[index], tasks) for index in sorted(repeats)]


def _describe_repeat(index: int, rows: Sequence[Row], tasks: int) -> dict[str, Any]:
    present = len({read_task_index(row) for row in rows})
    made: dict[str, Any] = {ROLLOUT: index, "sample_count": present, "missing_count": tasks - present}
    for name, column in sorted(_collect_columns(extract_numbers(row) for row in rows).items()):
        mean, std = float(column.mean()), _compute_std(column)
        error = std / math.sqrt(len(column))
        made |= {
            f"mean/{name}": mean,
            f"median/{name}": float(np.median(column)),
            f"std/{name}": std,
            f"sem/{name}": error,
            f"min/{name}": float(column.min()),
            f"max/{name}": float(column.max()),
            f"p25/{name}": float(np.quantile(column, 0.25)),
            f"p75/{name}": float(np.quantile(column, 0.75)),
            **_compute_interval(name, "", mean, error, len(column)),
        }
    return made


def _compute_interval(name: str, across: str, mean: float, error: float, n: int) -> dict[str, float]:
    if n < 2:
        return {}
    half = compute_t975(n - 1) * error
    return {f"ci_low_95{across}/{name}": mean - half, f"ci_high_95{across}/{name}": mean + half}


def compute_across_repeats(repeats: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, float]:
    """Return statistics of the figures ``names`` of the repeats, each repeat one observation."""
    made: dict[str, float] = {}
    for name in names:
        column = np.array([repeat[name] for repeat in repeats if name in repeat], dtype=np.float64)
        if not len(column):
            continue
        mean, std = float(column.mean()), _compute_std(column)
        error = std / math.sqrt(len(column))
        found = {
            "mean": mean,
            "median": float(np.median(column)),
            "std": std,
            "min": float(column.min()),
            "max": float(column.max()),
            "se": error,
        }
        made |= {f"{stat}_across_repeats/{name}": value for stat, value in found.items()}
        made |= _compute_interval(name, "_across_repeats", mean, error, len(column))
    return made
