"""Abstention rows and replies with the field names of Gym 0.7's ``resources_servers/abstention``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.abstention.answers import is_written_list, read_target
from gavel.envs.abstention.target import Target, parse_target
from gavel.envs.interfaces.nemo_gym.shapes import Shape
from gavel.envs.types import Outcome

_VERDICTS = {"abstained": "abstain"}
"""Gym's word for a label where it differs; ``truncated`` and ``no_answer`` are verdicts of ours, neither right nor
wrong.
"""
_POINTS = {"correct": 1.0, "incorrect": -1.0}


def _make_fields(target: Target, task_id: str) -> Mapping[str, Any]:
    return {"id": task_id, "question": target.question, **_make_answer(target.references)}


def _make_answer(references: tuple[str, ...]) -> Mapping[str, Any]:
    if not references:
        return {"answerable": False}
    single = len(references) == 1 and not is_written_list(references[0])
    return {"answer": references[0] if single else list(references)}


def _make_reply(outcome: Outcome, target: Target | None) -> Mapping[str, Any]:
    details = outcome.details or {}
    made: dict[str, Any] = {
        "extracted_answer": details.get("answer"),
        "ground_truth": " or ".join(target.references) or None if target else None,
        "verdict": _VERDICTS.get(outcome.label, outcome.label) or None,
        "judge_output": details.get("judge_reply"),
    }
    if outcome.graded:
        made |= {f"is_{name}": float(outcome.label == label) for name, label in _FLAGS.items()}
        made["omniscience_index"] = _POINTS.get(outcome.label, 0.0)
    return made


_FLAGS = {"correct": "correct", "abstain": "abstained", "incorrect": "incorrect"}
SHAPE = Shape(_make_fields, read_target, _make_reply, parse_target, domain="rlhf")
