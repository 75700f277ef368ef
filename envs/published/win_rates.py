"""AlpacaEval: win rates of models over a baseline, from each stored preference."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence

import numpy as np

from gavel.envs.published.figures import Figure, make_figure
from gavel.envs.published.files import PublishedFiles

_ROOT = "tatsu-lab/alpaca_eval"
_BOARDS = (
    (
        "alpaca_eval_gpt4",
        "data_AlpacaEval/alpaca_eval_gpt4_leaderboard.csv",
        ("gpt4_1106_preview", "gpt-3.5-turbo-1106"),
    ),
    (
        "weighted_alpaca_eval_gpt4_turbo",
        "data_AlpacaEval_2/weighted_alpaca_eval_gpt4_turbo_leaderboard.csv",
        ("gpt-3.5-turbo-1106", "gpt-3.5-turbo-1106_verbose", "Mixtral-8x7B-Instruct-v0.1_concise"),
    ),
)
"""Judge, leaderboard, and models whose preferences are stored whole."""
_DRAWS = (0.0, 1.5)


def compute_win_rate(preferences: Sequence[float]) -> tuple[float, float]:
    """Return win rate and standard error in percent.

    Args:
        preferences: 1 for the baseline to 2 for the model, in between for a judge that is not sure; 0 and 1.5 are
            draws.
    """
    wins = np.array([0.5 if one in _DRAWS else one - 1 for one in preferences], dtype=np.float64)
    return 100 * float(wins.mean()), 100 * float(wins.std(ddof=1)) / math.sqrt(len(wins))


def recount_alpacaeval(files: PublishedFiles) -> Sequence[Figure]:
    """Return the win rates and standard errors of AlpacaEval's leaderboards (Dubois et al. 2024, arXiv:2404.04475)."""
    found = []
    for judge, name, models in _BOARDS:
        text = files.read_text(f"{_ROOT}/src/alpaca_eval/leaderboards/{name}")
        published = {row[""]: row for row in csv.DictReader(io.StringIO(text))}
        for model in models:
            rows = json.loads(files.read_text(f"{_ROOT}/results/{model}/{judge}/annotations.json"))
            rate, error = compute_win_rate([row["preference"] for row in rows if row["preference"] is not None])
            stored = published[model]
            found.append(
                make_figure(
                    f"{model} by {judge}",
                    f"{float(stored['win_rate']):.2f} ± {float(stored['standard_error']):.2f}",
                    f"{rate:.2f} ± {error:.2f}",
                )
            )
    return found
