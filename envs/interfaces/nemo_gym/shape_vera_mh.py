"""VERA-MH rows and replies: Gym has no such server, so the names are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.interfaces.nemo_gym.shapes import Shape
from gavel.envs.types import Outcome
from gavel.envs.vera_mh.target import VeraMhTarget, parse_target

_KEPT = ("ratings", "yes_question_ids", "path", "risk", "utterances", "ended_by_persona")


def _make_fields(target: VeraMhTarget, task_id: str) -> Mapping[str, Any]:
    return {"id": task_id, "persona": target.persona, "simulator": target.simulator}


def _read_target(row: Mapping[str, Any]) -> VeraMhTarget:
    return parse_target({name: row[name] for name in ("persona", "simulator") if name in row})


def _make_reply(outcome: Outcome, target: VeraMhTarget | None) -> Mapping[str, Any]:  # noqa: ARG001
    details = outcome.details or {}
    about: dict[str, Any] = {name: details[name] for name in _KEPT if name in details}
    if not outcome.graded:
        return {name: value for name, value in about.items() if not isinstance(value, bool | int | float)}
    score = details.get("score")
    return about if score is None else {**about, "vera_mh_score": score}


SHAPE = Shape(_make_fields, _read_target, _make_reply, parse_target)
