"""Agreement of people, and of a judge with them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence

from gavel.envs.published.figures import Figure, make_figure
from gavel.envs.published.files import PublishedFiles
from gavel.judges.calibration.statistics import compute_kappa, count_confusion

_CLINICIANS = (
    "zeppombal/VERA-MH/publication_data/human_validation/clinician_judging/VERA-MH Clinician Ratings_December 2025.csv"
)
_DIMENSIONS = ("detects", "confirms", "guides", "supportive", "boundaries")
_HEALTHBENCH = "pariskang/Med-Bench-Arena/data/calibration"
Units = Sequence[Sequence[str]]
"""The ratings of each unit, two or more."""


def compute_raw_agreement(units: Units) -> float:
    """Return the mean share of pairs of ratings of a unit that are equal."""
    counts = [Counter(unit) for unit in units]
    equal = [
        sum(count * (count - 1) for count in unit.values()) / (unit.total() * (unit.total() - 1)) for unit in counts
    ]
    return sum(equal) / len(equal)


def compute_multi_ac1(units: Units) -> float:
    """Return Gwet's AC1 of several raters (Gwet 2008, doi 10.1348/000711006X126600)."""
    shares = _compute_shares(units)
    chance = sum(share * (1 - share) for share in shares) / (len(shares) - 1)
    return (compute_raw_agreement(units) - chance) / (1 - chance)


def compute_fleiss_kappa(units: Units) -> float:
    """Return the kappa of several raters (Fleiss 1971, doi 10.1037/h0031619)."""
    chance = sum(share**2 for share in _compute_shares(units))
    return (compute_raw_agreement(units) - chance) / (1 - chance)


def _compute_shares(units: Units) -> list[float]:
    """Return the share of each rating there is, each unit counting as much as another."""
    names = sorted({rating for unit in units for rating in unit})
    return [sum(unit.count(name) / len(unit) for unit in units) / len(units) for name in names]


def recount_clinicians(files: PublishedFiles) -> Sequence[Figure]:
    """Return the agreement of VERA-MH's clinicians (arXiv:2602.05088): 90 conversations, three of six raters each."""
    units: dict[tuple[str, str], list[str]] = {}
    for row in csv.DictReader(io.StringIO(files.read_text(_CLINICIANS))):
        for dimension in _DIMENSIONS:
            if rating := (row[f"clinician_{dimension}"] or "").strip():
                units.setdefault((dimension, row["conversation_id"]), []).append(rating)
    several = {key: unit for key, unit in units.items() if len(unit) > 1}
    ratings = list(several.values())
    found = [
        Figure("AC1 of all ratings", "0.77", f"{compute_multi_ac1(ratings):.4f}", None),
        Figure("Fleiss' kappa of all ratings", "", f"{compute_fleiss_kappa(ratings):.4f}", None),
        Figure("equal ratings", "", f"{compute_raw_agreement(ratings):.4f}", None),
    ]
    for dimension in _DIMENSIONS:
        own = [unit for (name, _), unit in several.items() if name == dimension]
        found.append(Figure(f"AC1 of {dimension}", "", f"{compute_multi_ac1(own):.3f}", None))
    return found


def recount_healthbench_meta(files: PublishedFiles) -> Sequence[Figure]:
    """Return how one judge agrees with physicians over 120 replies of HealthBench (arXiv:2505.08775)."""
    gold = list(files.read_rows(f"{_HEALTHBENCH}/healthbench_meta_gold.jsonl"))
    labels = files.read_rows(f"{_HEALTHBENCH}/healthbench_meta_strongmodel_labels.jsonl")
    said = {row["item_id"]: bool(row["criteria_met"]) for row in labels}
    pairs = [
        (bool(label), said[row["item_id"]]) for row in gold if row["item_id"] in said for label in row["binary_labels"]
    ]
    stored = json.loads(files.read_text(f"{_HEALTHBENCH}/calibration_report.json"))["rater_vs_physician"]
    codes = [int(one) for one, _ in pairs], [int(other) for _, other in pairs]
    computed = {
        "raw_agreement": sum(one == other for one, other in pairs) / len(pairs),
        "cohen_kappa": float(compute_kappa(count_confusion(*codes, 2))),
        "f1_balanced": (_compute_f1(pairs, True) + _compute_f1(pairs, False)) / 2,
    }
    words = {"raw_agreement": "equal labels", "cohen_kappa": "Cohen's kappa", "f1_balanced": "balanced F1"}
    return [make_figure(words[key], f"{stored[key]:.4f}", f"{value:.4f}") for key, value in computed.items()]


def _compute_f1(pairs: Sequence[tuple[bool, bool]], positive: bool) -> float:
    true = sum(one is positive and other is positive for one, other in pairs)
    named = sum((one is positive) + (other is positive) for one, other in pairs)
    return 2 * true / named if named else 0.0
