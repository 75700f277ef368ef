"""The figures of judged tasks: each rubric's mean score and labels, overall and by slice. Ungraded rows are in none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gavel.envs.judged.environment import GATES
from gavel.envs.slices import slice_rows
from gavel.envs.statistics import encode, mean, pass_at, share
from gavel.envs.types import Metric, Result, Summary

PREFIX = "judged"


def summarize(results: Sequence[Result]) -> Summary:
    """Return, for each rubric, ``judged/<rubric>`` (the mean score), ``judged/<rubric>/passed`` and the share of each label; the share
    of replies that passed all (``judged/passed``), were cut or said nothing; with several rollouts pass@k; slices (``@topic=law``)."""
    graded = list({(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}.values())
    metrics = dict(_figures(graded, ""))
    for suffix, rows in slice_rows(graded, graded).items():
        metrics |= dict(_figures(rows, suffix))
    labels = {name: dict(sorted(Counter(_labels(graded, name)).items())) for name in _rubrics(graded)}
    return Summary(metrics, {"labels": labels})


def _rubrics(rows: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(check.name for row in rows for check in row.outcome.checks))


def _labels(rows: Sequence[Result], name: str) -> list[str]:
    return [str((row.outcome.details or {}).get("labels", {}).get(name, row.outcome.label)) for row in rows]


def _figures(rows: Sequence[Result], suffix: str) -> Iterator[tuple[str, Metric]]:
    if not rows:
        return
    clusters = encode(row.task_id for row in rows)
    passed = np.array([all(check.passed for check in row.outcome.checks) for row in rows])
    found: dict[str, Metric | None] = {"passed": share(passed, clusters)}
    for name in _rubrics(rows):
        checks = [next(check for check in row.outcome.checks if check.name == name) for row in rows]
        found[name] = mean([check.score for check in checks], clusters, bounds=(0.0, 1.0))
        found[f"{name}/passed"] = share([bool(check.passed) for check in checks], clusters)
        labels = _labels(rows, name)
        found |= {f"{name}/{label}": share([one == label for one in labels], clusters) for label in sorted(set(labels) - set(GATES))}
    found |= {f"{gate}_rate": share([row.outcome.label == gate for row in rows], clusters) for gate in GATES}
    most = int(np.bincount(clusters).max())
    if most > 1:
        found |= {f"pass@{k}": pass_at(k, passed, clusters) for k in sorted({*(2**i for i in range(most.bit_length())), most})}
    for name, metric in found.items():
        if metric is not None:
            yield f"{PREFIX}/{name}{suffix}", metric
