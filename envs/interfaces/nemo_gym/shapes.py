"""What a task and a result of each environment look like in Gym's form: which top-level fields, which field names of a
reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from gavel.envs.types import Outcome, Task, TaskError
from gavel.models.codec import to_plain
from gavel.models.errors import shorten_value

_HERE = "gavel.envs.interfaces.nemo_gym"
SHAPES: Mapping[str, str] = {
    "abstention": f"{_HERE}.shape_abstention",
    "instruction_following": f"{_HERE}.shape_instruction_following",
    "vera_mh": f"{_HERE}.shape_vera_mh",
}
"""Modules with a ``SHAPE``; every other environment has the general one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One environment's form.

    Args:
        fields: from a task's target and its id to the row's top-level fields.
        target: from a row to the target (parsed, or plain JSON); raises ``TaskError`` naming the field.
        reply: from an outcome and the target (None where there is no valid task) to the reply's own fields. Top-level
            numbers become metrics of Gym's, so an ungraded outcome gives none.
        parse: from the target's plain JSON to the target.
        domain: of the environment, in Gym's words.
    """

    fields: Callable[[Any, str], Mapping[str, Any]]
    target: Callable[[Mapping[str, Any]], Any]
    reply: Callable[[Outcome, Any], Mapping[str, Any]]
    parse: Callable[[Mapping[str, Any]], Any] = dict
    domain: str = "other"

    def parse_task(self, task: Task) -> Task:
        """Return a task read from a file with its target parsed."""
        return replace(task, target=self.parse(task.target))


def find_shape(env: str) -> Shape:
    """Return the form of an environment's rows and replies."""
    if env not in SHAPES:
        return _GENERAL
    shape: Shape = import_module(SHAPES[env]).SHAPE
    return shape


def _make_fields(target: Any, task_id: str) -> Mapping[str, Any]:
    return {"id": task_id, "target": to_plain(target)}


def _read_target(row: Mapping[str, Any]) -> Any:
    target = row.get("target")
    if not isinstance(target, Mapping):
        raise TaskError(
            "this is not an object", field="target", found=shorten_value(target), allowed="the task's target"
        )
    return target


def _make_reply(outcome: Outcome, target: Any) -> Mapping[str, Any]:  # noqa: ARG001
    return {"checks": to_plain(outcome.checks)}


_GENERAL = Shape(_make_fields, _read_target, _make_reply)
