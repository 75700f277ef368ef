"""What the service does for Gym, without HTTP: which environment a row is for, verify it, play it, sum replies up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gavel.envs.episode import Policy
from gavel.envs.interfaces.nemo_gym.aggregate import RESULT, aggregate_rows
from gavel.envs.interfaces.nemo_gym.baseline import Row
from gavel.envs.interfaces.nemo_gym.episodes import read_sampling
from gavel.envs.interfaces.nemo_gym.forms import FormError, run_row, verify_row
from gavel.envs.interfaces.nemo_gym.names import (
    make_agent_name,
    make_environment_server_name,
    make_resources_server_name,
)
from gavel.envs.interfaces.nemo_gym.replies import make_reply
from gavel.envs.interfaces.nemo_gym.responses import make_response_object, read_messages
from gavel.envs.interfaces.nemo_gym.rows import BLOCK
from gavel.envs.interfaces.nemo_gym.shapes import find_shape
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.types import Result, Task, TaskError
from gavel.models.errors import shorten_value

Seen = Callable[[str, Result], None]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The environments as Gym sees them.

    Args:
        served: by name.
        policy: asked by ``run_row``; None: nothing is configured, and ``run_row`` refuses.
        seen: told the environment's name and each result.
    """

    served: Mapping[str, ServedEnvironment]
    policy: Policy | None = None
    seen: Seen = lambda name, result: None  # noqa: ARG005

    async def verify_row(self, body: Any) -> dict[str, Any]:
        """Grade a row's ``response``; see ``replies`` for the reply.

        Raises:
            FormError: the body is no such row, or one reply of a conversation is to be graded on its own.
            ResponseError: its ``response`` cannot be read.
        """
        row = verify_row(body)
        served = self._find_served(row)
        messages = read_messages(row.get("response"))
        task = _read_row(served, row)
        if isinstance(task, Result):
            return self._make_reply(served, row, row["response"], task, None)
        if len(messages) == 1 and (turns := served.environment.info.policy_turns or 1) > 1:
            raise FormError(
                f"the environment {served.name} plays conversations of up to {turns} replies, and one reply of a "
                f"conversation has no "
                "grade",
                field="response.output",
                found="one reply",
                allowed="the whole conversation, as /run returns it",
                remedy=f"let the service play the rows: gym eval run --no-serve --agent {make_agent_name(served.name)}",
            )
        rollout, attempt = _read_place(row)
        result = await served.grade_episode(task, (*task.messages, *messages), rollout_index=rollout, attempt=attempt)
        return self._make_reply(served, row, row["response"], result, task)

    async def run_row(self, body: Any) -> dict[str, Any]:
        """Play a row to its end and grade it; the reply's ``response`` holds what was said after the request.

        Raises:
            FormError: the body is no such row, or no policy is configured.
        """
        row, envelope = run_row(body)
        served, created = self._find_served(row), time.time()
        if self.policy is None:
            raise FormError(
                "no policy is configured, so that no row can be played",
                field="policy",
                allowed="policy=external policy.base_url=URL policy.model=NAME",
                remedy="start the service with a policy, or let an agent of Gym's play the rows and send them "
                "to /verify",
            )
        task, result = await _play_row(served, self.policy, row)
        said = result.transcript.messages[len(task.messages) :] if task else ()
        response_id = f"resp_{(result.task_digest or 'sha256:none')[7:23]}_{result.rollout_index}_{result.attempt}"
        response = make_response_object(said, response_id=response_id, created=created, model=self.policy.model.name)
        reply = self._make_reply(served, row, response, result, task)
        return envelope.make_answer(reply) if envelope else reply

    def aggregate_rows(self, rows: list[Row]) -> dict[str, Any]:
        """Return the metrics of replies, see ``aggregate_rows``; those of several environments are of Gym's kind only.

        Raises:
            FormError: a row holds what no reply of ours does.
        """
        names = {self._find_name(row) for row in rows if isinstance(row.get(RESULT), Mapping)}
        served = self.served.get(names.pop() or "") if len(names) == 1 else None
        try:
            return aggregate_rows(rows, served.environment.summarize if served else None)
        except Exception as failed:
            raise FormError(
                "these replies cannot be summed up",
                field=f"verify_responses.{RESULT}",
                found=shorten_value(f"{type(failed).__name__}: {failed}"),
                allowed="results as /verify and /run gave them",
            ) from failed

    def make_config(self, host: str, port: int) -> dict[str, Any]:
        """Return the Gym config of this service, which stands at ``host`` and ``port``."""
        made: dict[str, Any] = {"head_server": {"host": host, "port": port}}
        for name, served in self.served.items():
            made |= _make_blocks(name, find_shape(served.environment.name).domain, host, port)
        return made

    def _find_served(self, row: Row) -> ServedEnvironment:
        name = self._find_name(row)
        if name is None or name not in self.served:
            raise FormError(
                "this row is for no environment that is served here",
                field=f"agent_ref.name or {BLOCK}.env",
                found=shorten_value([row.get("agent_ref"), row.get(BLOCK)]),
                allowed=", ".join(make_agent_name(name) for name in self.served),
            )
        return self.served[name]

    def _find_name(self, row: Row) -> str | None:
        """Return what serves a row: its agent says so, it names the environment, there is one only, or one alone
        recognises it.
        """
        block, agent = row.get(BLOCK), row.get("agent_ref")
        found = agent.get("name") if isinstance(agent, Mapping) else None
        if (named := next((name for name in self.served if make_agent_name(name) == found), None)) is not None:
            return named
        if isinstance(block, Mapping) and "env" in block:
            return next((name for name, served in self.served.items() if served.environment.name == block["env"]), None)
        if len(self.served) == 1:
            return next(iter(self.served))
        knowing = [
            name for name, served in self.served.items() if any(adapter.recognises(row) for adapter in served.adapters)
        ]
        return knowing[0] if len(knowing) == 1 else None

    def _make_reply(
        self, served: ServedEnvironment, row: Row, response: Any, result: Result, task: Task | None
    ) -> dict[str, Any]:
        self.seen(served.name, result)
        return make_reply(row, response, result, find_shape(served.environment.name), task.target if task else None)


async def _play_row(served: ServedEnvironment, policy: Policy, row: Row) -> tuple[Task | None, Result]:
    """Return the task, None where it is not valid, and the result."""
    task = _read_row(served, row)
    if isinstance(task, Result):
        return None, task
    try:
        sampling = read_sampling(row.get("responses_create_params", {}), policy.sampling)
    except TaskError as failed:
        return None, served.make_invalid_result(failed, row, rollout_index=_read_place(row)[0])
    rollout, attempt = _read_place(row)
    drawn = replace(policy, sampling=sampling, filtered=served.environment.info.keeps_filtered)
    return task, await served.play_episode(task, drawn, rollout_index=rollout, attempt=attempt)


def _read_row(served: ServedEnvironment, row: Row) -> Task | Result:
    try:
        return served.read_task(row)
    except TaskError as failed:
        return served.make_invalid_result(failed, row, rollout_index=_read_place(row)[0])


def _read_place(row: Row) -> tuple[int, int]:
    """Return a row's rollout index from 0 and its attempt from 1."""
    found = [row.get(name) for name in ("_ng_rollout_index", "_ng_attempt_index")]
    rollout, attempt = (value if isinstance(value, int) and value >= 0 else 0 for value in found)
    return rollout, attempt + 1


def _make_blocks(name: str, domain: str, host: str, port: int) -> dict[str, Any]:
    at = {"entrypoint": "app.py", "host": host, "port": port}
    resources = {"type": "resources_servers", "name": make_resources_server_name(name)}
    agent = {"type": "responses_api_agents", "name": make_agent_name(name)}
    return {
        make_resources_server_name(name): {
            "resources_servers": {make_resources_server_name(name): {**at, "domain": domain}}
        },
        make_agent_name(name): {"responses_api_agents": {"gavel_agent": {**at, "resources_server": resources}}},
        make_environment_server_name(name): {"environment_servers": {"legacy_agent": {**at, "agent_server": agent}}},
    }
