"""Abstention rows and replies with the field names of Gym 0.7's ``resources_servers/abstention``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.abstention.target import AbstentionTarget, parse_target
from gavel.envs.interfaces.nemo_gym.shapes import Shape
from gavel.envs.sources import text_field
from gavel.envs.types import Outcome

_VERDICTS = {"abstained": "abstain"}
"""Gym's word for a label where it differs; ``truncated`` and ``no_answer`` are verdicts of ours, neither right nor wrong."""
_POINTS = {"correct": 1.0, "incorrect": -1.0}


def _fields(target: AbstentionTarget, task_id: str) -> Mapping[str, Any]:
    return {"id": task_id, "question": target.question, "answer": target.reference}


def _target(row: Mapping[str, Any]) -> AbstentionTarget:
    return parse_target({"question": text_field(row, "question"), "reference": text_field(row, "answer")})


def _reply(outcome: Outcome, target: AbstentionTarget | None) -> Mapping[str, Any]:
    details = outcome.details or {}
    made: dict[str, Any] = {
        "extracted_answer": details.get("answer"), "ground_truth": target.reference if target else None,
        "verdict": _VERDICTS.get(outcome.label, outcome.label) or None, "judge_output": details.get("judge_reply"),
    }  # fmt: skip
    if outcome.graded:
        made |= {f"is_{name}": float(outcome.label == label) for name, label in _FLAGS.items()}
        made["omniscience_index"] = _POINTS.get(outcome.label, 0.0)
    return made


_FLAGS = {"correct": "correct", "abstain": "abstained", "incorrect": "incorrect"}
SHAPE = Shape(_fields, _target, _reply, parse_target, domain="rlhf")
