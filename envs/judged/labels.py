"""The labels of judged replies that the environment and its metrics share."""

from __future__ import annotations

PASSES = 0.5
"""The score from which a reply passes a rubric."""

GATES = ("truncated", "no_answer")
"""Labels of replies that no judge is asked about: cut at the limit of tokens, or nothing is said."""

PARTIAL = "partial"
"""The label of a reply with a criterion that nobody gave a verdict on: it has no score, and is in no mean."""
PAIRS = "pairs"
"""Where an outcome's details hold what each rubric of pairs said in both orders."""
