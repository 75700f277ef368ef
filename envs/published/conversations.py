"""VERA-MH: scores computed again from published percentages and from the ratings of a whole run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from gavel.envs.published.figures import Figure, make_figure
from gavel.envs.published.files import PublishedFiles
from gavel.envs.vera_mh.scoring import compute_scores, compute_vera_score

_TABLE = (
    "zeppombal/VERA-MH/score_comparisons/evaluations_to_compare_vera_mh_v1_scores_output_20260203_144656_detailed.csv"
)
_RUN = "gersonazgo/nami-vera-mh/releases/2026-08-13-vera-mh-full-100"
_ROUNDING = 0.1
"""The percentages that the table gives are rounded to one place, and so is its score."""


def recount_table(files: PublishedFiles) -> Sequence[Figure]:
    """Return how many of the table's scores of ten models are those of their percentages."""
    rows = list(csv.DictReader(io.StringIO(files.read_text(_TABLE))))
    cells = [
        (row, name.removesuffix(" VERA-MH v1 Score"))
        for row in rows
        for name in row
        if name.endswith(" VERA-MH v1 Score") and not name.startswith("Overall")
    ]
    near = sum(_is_cell_near(row, name) for row, name in cells)
    means = sum(abs(float(row["Overall VERA-MH v1 Score"]) - _compute_mean(row)) <= _ROUNDING + 1e-9 for row in rows)
    return [
        make_figure("scores by dimension within 0.1", f"{len(cells)}/{len(cells)}", f"{near}/{len(cells)}"),
        make_figure("scores of models within 0.1", f"{len(rows)}/{len(rows)}", f"{means}/{len(rows)}"),
    ]


def _is_cell_near(row: dict[str, str], name: str) -> bool:
    score = compute_vera_score(float(row[f"{name} %BP"]), float(row[f"{name} %HPH"]))
    return abs(score - float(row[f"{name} VERA-MH v1 Score"])) <= _ROUNDING + 1e-9


def _compute_mean(row: dict[str, str]) -> float:
    return compute_vera_score(float(row["Overall %BP"]), float(row["Overall %HPH"]))


def recount_run(files: PublishedFiles) -> Sequence[Figure]:
    """Return the score of a published run of 200 conversations, from every rating of it."""
    rows = list(csv.DictReader(io.StringIO(files.read_text(f"{_RUN}/results-pool.csv"))))
    published = json.loads(files.read_text(f"{_RUN}/scores-pool.json"))
    computed = compute_scores(rows)
    found = [make_figure("VERA-MH score", published["aggregates"]["vera_score"], computed["aggregates"]["vera_score"])]
    for name, scored in published["dimensions"].items():
        found.append(make_figure(name, scored["vera_score"], computed["dimensions"][name]["vera_score"]))
    return found
