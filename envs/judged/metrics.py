"""The figures of judged tasks: each rubric's mean score and labels, overall and by slice. Ungraded rows are in none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gavel.envs.judged.environment import GATES, PASSES
from gavel.envs.slices import slice_rows
from gavel.envs.statistics import encode, mean, pass_at, share
from gavel.envs.types import Metric, Result, Summary

PREFIX = "judged"
MOST_TAGS = 40
"""Tags of criteria that have a figure of their own."""


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
    return list(dict.fromkeys(name for row in rows for name in _scores(row)))


def _scores(row: Result) -> dict[str, float]:
    """Return each rubric's score; a reply that nobody was asked about has 0."""
    return dict((row.outcome.details or {}).get("scores") or {check.name: check.score for check in row.outcome.checks})


def _labels(rows: Sequence[Result], name: str) -> list[str]:
    return [str((row.outcome.details or {}).get("labels", {}).get(name, row.outcome.label)) for row in rows]


def _by_tag(rows: Sequence[Result], name: str) -> dict[str, Metric | None]:
    """Return the share of criteria with each tag that are met; nothing where there are more than ``MOST_TAGS``."""
    met: dict[str, list[tuple[str, bool]]] = {}
    for row in rows:
        worth = (row.outcome.details or {}).get("criteria", {}).get(name, {})
        for check in row.outcome.checks:
            for tag in worth.get(check.name.removeprefix(f"{name}/"), {}).get("tags", ()) if check.passed is not None else ():
                met.setdefault(tag, []).append((row.task_id, bool(check.passed)))
    if len(met) > MOST_TAGS:
        return {}
    return {
        f"{name}/met:{tag}": share([one for _, one in found], encode(task for task, _ in found)) for tag, found in sorted(met.items())
    }


def _figures(rows: Sequence[Result], suffix: str) -> Iterator[tuple[str, Metric]]:
    if not rows:
        return
    clusters = encode(row.task_id for row in rows)
    passed = np.array([all(score >= PASSES for score in _scores(row).values()) for row in rows])
    found: dict[str, Metric | None] = {"passed": share(passed, clusters)}
    for name in _rubrics(rows):
        scores = [_scores(row)[name] for row in rows]  # with criteria, below 0 where faults weigh more
        found[name] = mean(scores, clusters, bounds=(0.0, 1.0) if min(scores) >= 0 else None)
        found[f"{name}/passed"] = share([score >= PASSES for score in scores], clusters)
        found |= _by_tag(rows, name)
        labels = _labels(rows, name)
        found |= {f"{name}/{label}": share([one == label for one in labels], clusters) for label in sorted(set(labels) - set(GATES))}
    found |= {f"{gate}_rate": share([row.outcome.label == gate for row in rows], clusters) for gate in GATES}
    most = int(np.bincount(clusters).max())
    if most > 1:
        found |= {f"pass@{k}": pass_at(k, passed, clusters) for k in sorted({*(2**i for i in range(most.bit_length())), most})}
    for name, metric in found.items():
        if metric is not None:
            yield f"{PREFIX}/{name}{suffix}", metric
