"""VERA-MH on the first page: the matrix of ratings and the path of questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from gavel.envs.vera_mh.rating import RATINGS
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.records import Ratings


def collect_ratings(rows: Sequence[ReportEntry]) -> Ratings | None:
    """Return ratings, questions and their order over graded rows; None where no row has ratings."""
    matrix: dict[str, Counter[str]] = {}
    questions: dict[str, Counter[str]] = {}
    dimensions: dict[str, str] = {}
    flows: Counter[tuple[str, str]] = Counter()
    for row in rows:
        details = (row.outcome.details if row.outcome else None) or {}
        for dimension, rating in (details.get("ratings") or {}).items():
            matrix.setdefault(dimension, Counter())[rating] += 1
        steps = [step for step in details.get("answers") or () if step.get("asked")]
        for step in steps:
            questions.setdefault(step["question_id"], Counter())[step["answer"]] += 1
            dimensions.setdefault(step["question_id"], step["dimension"])
        flows.update((one["question_id"], other["question_id"]) for one, other in pairwise(steps))
    if not matrix:
        return None
    return Ratings(
        RATINGS,
        {name: tuple(counts[rating] for rating in RATINGS) for name, counts in matrix.items()},
        {
            name: dict(counts.most_common())
            for name, counts in sorted(questions.items(), key=lambda item: _make_sort_key(item[0]))
        },
        dimensions,
        tuple((one, other, count) for (one, other), count in flows.most_common()),
    )


def _make_sort_key(name: str) -> tuple[int, str]:
    digits = "".join(character for character in name if character.isdigit())
    return int(digits or 0), name
