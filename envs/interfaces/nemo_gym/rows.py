"""Tasks as rows of Gym's form, and back: same task, same digest.

Source of the form: the dataset rows of NeMo Gym 0.7.0 (``responses_create_params``, ``agent_ref``, the task's fields at
top level; what its abstention and verifif servers read has their names). What Gym has no place for stands in the field
``gavel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from gavel.envs.interfaces.nemo_gym.names import make_agent_name
from gavel.envs.interfaces.nemo_gym.shapes import find_shape
from gavel.envs.messages import read_messages
from gavel.envs.sources import Licence
from gavel.envs.types import Task, TaskError
from gavel.models.codec import load, record, to_plain
from gavel.models.errors import ConfigError
from gavel.models.types import Message, Role

BLOCK = "gavel"
"""The field of a row that holds what Gym has no place for."""
SOURCE = "nemo_gym"
_ROLES = get_args(Role)
_FIELD = "responses_create_params.input"


@record
class GymBlock:
    """What a row's other fields do not say of its task."""

    SCHEMA: ClassVar[str] = "gavel.gym_row/1"

    task_id: str
    env: str
    verifier: str
    metadata: Mapping[str, Any]


def make_gym_row(task: Task, agent: str | None = None) -> dict[str, Any]:
    """Return a task as a row of Gym's form.

    Args:
        task: its target parsed, or plain JSON.
        agent: what runs the row; None names the agent of our gateway.
    """
    shape = find_shape(task.env)
    block = {"schema": GymBlock.SCHEMA, "task_id": task.task_id, "env": task.env, "verifier": task.verifier}
    return {
        **shape.fields(task.target, task.task_id),
        "responses_create_params": {
            "input": [{"role": message.role, "content": message.content} for message in task.messages]
        },
        "agent_ref": {"type": "responses_api_agents", "name": agent or make_agent_name(task.env)},
        BLOCK: {**block, "metadata": to_plain(task.metadata)},
    }


class GymRows:
    """Adapts rows that ``make_gym_row`` wrote; see ``gavel.envs.sources.SourceAdapter``. The row's own verifier judges
    it.

    Raises:
        ConfigError: no environment is named.
    """

    name = SOURCE
    skips_bad_rows = False
    licence = Licence(
        {}, "rows of this form state no licence: tasks.jsonl is under that of the tasks they were written from"
    )

    def __init__(self, env: str | None) -> None:
        if env is None:
            raise ConfigError(
                "rows of this form are of any environment", field="source.name", found=SOURCE, remedy="name it: env=…"
            )
        self.env = self.binding = env

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row was written by ``make_gym_row``."""
        return isinstance(row.get(BLOCK), Mapping)

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:  # noqa: ARG002 - the row says what judges it
        """Return the row's task; raises ``TaskError`` naming the field."""
        given = row.get(BLOCK)
        if not isinstance(given, Mapping):
            raise TaskError(
                "this field is missing", field=BLOCK, allowed="what `gavel prepare format=nemo_gym` wrote there"
            )
        try:
            block = load(GymBlock, given, error=TaskError)
        except TaskError as bad:
            raise TaskError(bad.problem, field=f"{BLOCK}.{bad.field}", found=bad.found, allowed=bad.allowed) from None
        if block.env != self.env:
            raise TaskError(
                "this task is another environment's",
                field=f"{BLOCK}.env",
                found=block.env,
                allowed=self.env,
                remedy=f"choose env={block.env}",
            )
        target = find_shape(self.env).target(row)
        return Task(block.task_id, self.env, block.verifier, read_input_messages(row), target, dict(block.metadata))


def read_input_messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the messages of a row's ``responses_create_params.input``: a text, or a list of messages.

    Raises:
        TaskError: names the field.
    """
    params = row.get("responses_create_params")
    return read_messages(params.get("input") if isinstance(params, Mapping) else None, _FIELD)
