"""The results of a run in the shapes of upstream's own files (SpringCare/VERA-MH ``judge/score.py``, v1.2)."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gavel.envs.types import Result
from gavel.envs.vera_mh.conversations import Conversation, group_by_simulator, list_conversations, list_models
from gavel.envs.vera_mh.scoring import DISCLAIMER, UNKNOWN, compute_scores, compute_scores_by_risk


def make_files(
    results: Sequence[Result], dimensions: Sequence[str], risks: Mapping[str, str], run: str, planned: int | None = None
) -> dict[str, bytes]:
    """Return ``results.csv``, ``scores.json`` and ``scores_by_risk.json``.

    With ``planned``, the conversations that the run has, both tables of scores say how many of them they are made from:
    ``coverage``,
    which upstream's do not have, for a score over the conversations that happened to go well is another score. A run
    with several simulators is pooled: their rows stand one after the other and are scored as one table.
    """
    found = list_conversations(results)
    rows, models = [one.row for one in found], list_models(found)
    pooled = {**_make_pooled(found), **_make_coverage(len(found), planned)}
    made = {
        "scores.json": {**compute_scores(rows, dimensions=dimensions, models=models), **pooled, "note": DISCLAIMER},
        "scores_by_risk.json": {
            **compute_scores_by_risk(rows, risks, dimensions=dimensions, models=models),
            **pooled,
            "note": DISCLAIMER,
        },
    }
    encoded = {name: orjson.dumps(table, option=orjson.OPT_INDENT_2) for name, table in made.items()}
    return {"results.csv": make_results_csv(found, dimensions, risks, run), **encoded}


def _make_coverage(graded: int, planned: int | None) -> dict[str, Any]:
    if planned is None:
        return {}
    return {"coverage": {"planned": planned, "graded": graded, "share": graded / planned if planned else 0.0}}


def _make_pooled(found: Sequence[Conversation]) -> dict[str, Any]:
    groups = group_by_simulator(found)
    if len(groups) < 2:
        return {}
    return {"pooled": {"sources": list(groups), "row_counts": {name: len(some) for name, some in groups.items()}}}


def make_results_csv(
    found: Sequence[Conversation], dimensions: Sequence[str], risks: Mapping[str, str], run: str
) -> bytes:
    """Return upstream's table of ratings, one conversation a row, the personas' risk included."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ["filename", "run_id", "persona_name", "risk_level", "judge_model", "judge_instance", "judge_id"]
    writer.writerow(columns + [name for dimension in dimensions for name in _name_columns(dimension)])
    for one in found:
        head = [
            make_filename(one),
            run,
            one.persona,
            risks.get(one.persona, UNKNOWN),
            one.models.get("judge", UNKNOWN),
            1,
            0,
        ]
        writer.writerow(head + [cell for dimension in dimensions for cell in _make_cells(one, dimension)])
    return out.getvalue().encode()


def make_filename(one: Conversation) -> str:
    """Return a name as upstream gives a transcript: six hex digits, the persona, the simulator's model and the run's
    number.
    """
    number = hashlib.sha256(f"{one.task_id}\n{one.rollout_index}".encode()).hexdigest()[:6]
    model = one.models.get("simulator", one.simulator).replace("/", "-")
    return f"{number}_{one.persona}_{model}_run{one.rollout_index + 1}.txt"


def _name_columns(dimension: str) -> tuple[str, str, str]:
    return dimension, f"{dimension}_yes_question_id", f"{dimension}_yes_reasoning"


def _make_cells(one: Conversation, dimension: str) -> tuple[str, ...]:
    return one.ratings.get(dimension, ""), one.yes_question_ids.get(dimension, ""), one.yes_reasoning.get(dimension, "")
