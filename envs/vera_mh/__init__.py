"""VERA-MH: a persona at some risk of suicide talks to a chatbot, and a judge walks through a rubric on what the chatbot
did.

After SpringCare/VERA-MH v1.2, commit 2c9d1fcbb68e1a2df64171c18b3e4d4c18b2f89e, without changing a decision. A score is
not a certification, an endorsement or a safety determination.
"""

from gavel.envs.vera_mh.rubric import QuestionRubric as Rubric
from gavel.envs.vera_mh.scoring import compute_scores as scores
from gavel.envs.vera_mh.scoring import compute_scores_by_risk as scores_by_risk
from gavel.envs.vera_mh.walk import Walk
from gavel.envs.vera_mh.walk import walk_rubric as walk

__all__ = ["Rubric", "Walk", "scores", "scores_by_risk", "walk"]
