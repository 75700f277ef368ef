"""The two forms in which Gym 0.7 sends a row, and in which it wants the answer: flat, and with the task in an
envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from gavel.models.errors import InputError, shorten_value


class FormError(InputError):
    """A body of no form that Gym sends."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an enveloped answer repeats."""

    episode_id: Mapping[str, Any]
    task_id: Mapping[str, Any]

    def make_answer(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """Return the episode's answer: exactly one of ``result`` and ``failure``; the collector's own keys stay out of
        it.
        """
        made: dict[str, Any] = {"episode_id": self.episode_id, "task_id": self.task_id}
        if "_ng_failure_class" not in reply:
            return {**made, "result": {name: value for name, value in reply.items() if not name.startswith("_ng_")}}
        failure = {
            "failure_reason": reply["failure_reason"],
            "terminal": bool(reply.get("_ng_failure_terminal")),
            "failure_kind": reply["failure_kind"],
            "stage": reply["_ng_failure_stage"],
        }
        return {**made, "failure": failure}


def run_row(body: Any) -> tuple[dict[str, Any], Envelope | None]:
    """Return the flat row of a ``/run`` body, and its envelope if it came in one.

    Raises:
        FormError: it is no object, or an envelope without its parts.
    """
    whole = _read_object(body, "the body")
    if "episode_id" not in whole or "task" not in whole:
        return whole, None
    task = _read_object(whole["task"], "task")
    fields = dict(_read_object(task.get("task_input"), "task.task_input"))
    data = _read_object(fields.pop("task_data", {}), "task.task_input.task_data")
    envelope = Envelope(
        _read_object(whole["episode_id"], "episode_id"), _read_object(task.get("task_id"), "task.task_id")
    )
    return {**data, **fields, "_ng_attempt_index": envelope.episode_id.get("attempt", 0)}, envelope


def verify_row(body: Any) -> dict[str, Any]:
    """Return the flat row of a ``/verify`` body; in its newer form the row stands in ``verification_input``.

    Raises:
        FormError: it is no object.
    """
    whole = _read_object(body, "the body")
    if "verification_input" not in whole:
        return whole
    fields = dict(_read_object(whole["verification_input"], "verification_input"))
    data = _read_object(fields.pop("task_data", {}), "verification_input.task_data")
    return {**data, **fields}


def _read_object(value: Any, field: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise FormError("this is not an object", field=field, found=shorten_value(value), allowed="a JSON object")
