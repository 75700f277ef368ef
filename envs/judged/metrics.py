"""The figures of judged tasks: each rubric's mean score and labels, overall and by slice.

Ungraded rows are in none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gavel.envs.judged.labels import GATES, PAIRS, PASSES
from gavel.envs.slices import slice_rows
from gavel.envs.statistics import compute_mean, compute_pass_at, compute_share, encode_names
from gavel.envs.types import Metric, Result, Summary

PREFIX = "judged"
MOST_TAGS = 40
"""Tags of criteria that have a figure of their own."""


def summarize(results: Sequence[Result]) -> Summary:
    """Return, for each rubric, ``judged/<rubric>`` (the mean score), ``judged/<rubric>/passed`` and the share of each
    label; the share of replies that passed all (``judged/passed``), were cut or said nothing; with several rollouts
    pass@k; slices (``@topic=law``)."""
    graded = list(
        {(result.task_id, result.rollout_index): result for result in results if result.status == "graded"}.values()
    )
    metrics = dict(_compute_figures(graded, ""))
    for suffix, rows in slice_rows(graded, graded).items():
        metrics |= dict(_compute_figures(rows, suffix))
    labels = {name: dict(sorted(Counter(_read_labels(graded, name)).items())) for name in _list_rubrics(graded)}
    return Summary(metrics, {"labels": labels})


def _list_rubrics(rows: Sequence[Result]) -> list[str]:
    """Return the rubrics that gave a label or, where nobody was asked, a score."""
    return list(
        dict.fromkeys(name for row in rows for name in (row.outcome.details or {}).get("labels") or _read_scores(row))
    )


def _read_scores(row: Result) -> dict[str, float]:
    """Return the score of each rubric that gave one; a reply that nobody was asked about has 0."""
    stored = (row.outcome.details or {}).get("scores")
    return {check.name: check.score for check in row.outcome.checks} if stored is None else dict(stored)


def _read_labels(rows: Sequence[Result], name: str) -> list[str]:
    return [str((row.outcome.details or {}).get("labels", {}).get(name, row.outcome.label)) for row in rows]


def _compute_by_tag(rows: Sequence[Result], name: str) -> dict[str, Metric | None]:
    """Return the share of criteria with each tag that are met; nothing where there are more than ``MOST_TAGS``."""
    met: dict[str, list[tuple[str, bool]]] = {}
    for row in rows:
        worth = (row.outcome.details or {}).get("criteria", {}).get(name, {})
        for check in row.outcome.checks:
            for tag in (
                worth.get(check.name.removeprefix(f"{name}/"), {}).get("tags", ()) if check.passed is not None else ()
            ):
                met.setdefault(tag, []).append((row.task_id, bool(check.passed)))
    if len(met) > MOST_TAGS:
        return {}
    return {
        f"{name}/met:{tag}": compute_share([one for _, one in found], encode_names(task for task, _ in found))
        for tag, found in sorted(met.items())
    }


def _compute_scores(rows: Sequence[Result], name: str) -> dict[str, Metric | None]:
    """Return a rubric's mean score and the share that passed it, over the rows that it gave a score."""
    known = [(row.task_id, score) for row in rows if (score := _read_scores(row).get(name)) is not None]
    if not known:
        return {}
    clusters, scores = encode_names(task for task, _ in known), [score for _, score in known]
    bounds = (0.0, 1.0) if min(scores) >= 0 else None  # with criteria, below 0 where faults weigh more
    return {
        name: compute_mean(scores, clusters, bounds=bounds),
        f"{name}/passed": compute_share([score >= PASSES for score in scores], clusters),
    }


def _compute_flips(rows: Sequence[Result], name: str) -> dict[str, Metric | None]:
    """Return the share of a rubric's pairs whose two orders name different replies: the place decided."""
    pairs = [(row.task_id, pair) for row in rows if (pair := (row.outcome.details or {}).get(PAIRS, {}).get(name))]
    if not pairs:
        return {}
    flips = [bool(pair["position_flip"]) for _, pair in pairs]
    return {f"{name}/position_flips": compute_share(flips, encode_names(task for task, _ in pairs))}


def _compute_figures(rows: Sequence[Result], suffix: str) -> Iterator[tuple[str, Metric]]:
    if not rows:
        return
    clusters = encode_names(row.task_id for row in rows)
    whole = [row for row in rows if not row.outcome.partial]
    alike = encode_names(row.task_id for row in whole)
    passed = np.array([all(score >= PASSES for score in _read_scores(row).values()) for row in whole], dtype=bool)
    found: dict[str, Metric | None] = {"passed": compute_share(passed, alike) if whole else None}
    for name in _list_rubrics(rows):
        found |= _compute_scores(rows, name)
        found |= _compute_by_tag(rows, name)
        found |= _compute_flips(rows, name)
        labels = _read_labels(rows, name)
        found |= {
            f"{name}/{label}": compute_share([one == label for one in labels], clusters)
            for label in sorted(set(labels) - set(GATES))
        }
    found |= {f"{gate}_rate": compute_share([row.outcome.label == gate for row in rows], clusters) for gate in GATES}
    most = int(np.bincount(alike).max()) if whole else 0
    if most > 1:
        found |= {
            f"pass@{k}": compute_pass_at(k, passed, alike)
            for k in sorted({*(2**i for i in range(most.bit_length())), most})
        }
    for name, metric in found.items():
        if metric is not None:
            yield f"{PREFIX}/{name}{suffix}", metric
