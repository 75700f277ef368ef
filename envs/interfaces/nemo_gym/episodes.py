"""``/run``: a row played to its end, the policy asked for each reply, then graded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.types import Environment, Finish, NamesPolicyFailures, Outcome, Result, Task, TaskError, Timing, Transcript
from gavel.models.errors import shorten
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.types import ChatModel, ChatRequest, Message, Receipt, Sampling

_UNSUPPORTED = ("instructions", "tools", "previous_response_id", "prompt", "conversation")
"""Fields of a request that the policy's call has no place for; empty ones say nothing."""
_NUMBERS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_response_tokens"}


@dataclass(frozen=True, slots=True)
class Policy:
    """The model that is asked, and how its replies are drawn unless a row says otherwise."""

    model: ChatModel
    sampling: Sampling


@dataclass(slots=True)
class _Episode:
    """Where an episode stands."""

    messages: tuple[Message, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    policy_s: float = 0.0
    step_s: float = 0.0
    started: float = field(default_factory=time.time)


def sampling_of(params: Any, base: Sampling) -> Sampling:
    """Return how a row's replies are drawn: ``base``, with what the row's ``responses_create_params`` set.

    Raises:
        TaskError: no object, a field that the policy's call has no place for, or a number that is none.
    """
    if not isinstance(params, Mapping):
        raise TaskError("this is not an object", field="responses_create_params", found=shorten(params), allowed="an object")
    for name in _UNSUPPORTED:
        if params.get(name):
            raise TaskError(
                "a row played here cannot set this field", field=f"responses_create_params.{name}", found=shorten(params[name]),
                allowed="input, temperature, top_p, max_output_tokens, reasoning.effort",
                remedy="put instructions into `input` as a system message; let an agent of Gym's play rows with tools",
            )  # fmt: skip
    found: dict[str, Any] = {}
    for name, own in _NUMBERS.items():
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int if own == "max_response_tokens" else int | float):
            raise TaskError("this is no number", field=f"responses_create_params.{name}", found=shorten(value), allowed="a number")
        found[own] = value
    reasoning = params.get("reasoning")
    if isinstance(reasoning, Mapping) and isinstance(reasoning.get("effort"), str):
        found["reasoning_effort"] = reasoning["effort"]
    return replace(base, **found) if found else base


async def play(
    served: ServedEnvironment, policy: Policy, task: Task, sampling: Sampling, *, rollout_index: int, attempt: int
) -> Result:
    """Play one episode; the result's transcript holds every message. Raises nothing but cancellation."""
    episode, begun = _Episode(), time.perf_counter()
    finish = await _played(served, replace(policy, sampling=sampling), task, rollout_index, episode)
    finish = replace(finish, receipts=(*episode.receipts, *finish.receipts))
    timing = Timing(episode.started, episode.policy_s, episode.step_s, time.perf_counter() - begun)
    transcript = Transcript(episode.messages or task.messages)
    return served.result(task, transcript, finish, timing, rollout_index=rollout_index, attempt=attempt)


async def _played(served: ServedEnvironment, policy: Policy, task: Task, rollout_index: int, episode: _Episode) -> Finish:
    opening = await served.open(task)
    if isinstance(opening, Finish):
        return opening
    episode.messages, episode.receipts = opening.messages, opening.receipts
    over = opening.over
    while True:
        if not over and (failed := await _replied(served, policy, task, rollout_index, episode)) is not None:
            return failed
        begun = time.perf_counter()
        said = await served.step(task, Transcript(episode.messages))
        episode.step_s += time.perf_counter() - begun
        if isinstance(said, Finish):
            return said
        episode.messages, episode.receipts = (*episode.messages, *said.messages), (*episode.receipts, *said.receipts)


async def _replied(served: ServedEnvironment, policy: Policy, task: Task, rollout_index: int, episode: _Episode) -> Finish | None:
    """Add the policy's next reply, or return the ungraded end of an episode whose policy failed. Never from a cache: each is a draw."""
    request = ChatRequest(
        episode.messages, "policy", policy.sampling, sample=rollout_index, fresh=True, prefix_key=task.task_id,
        filtered=bool(getattr(served.environment, "keeps_filtered", False)),
    )  # fmt: skip
    begun = time.perf_counter()
    try:
        completion = await policy.model.complete(request)
    except ModelFailure as failed:
        return Finish(Outcome("", failure=_failure(served.environment, failed)), receipts=failed.receipts)
    except Exception as failed:  # noqa: BLE001 - the boundary of a model's own code: a bug there must not end the service's request
        failure = Failure(FailureKind.VERIFIER_ERROR, "policy", f"{type(failed).__name__}: {failed}")
        return Finish(Outcome("", failure=failure))
    finally:
        episode.policy_s += time.perf_counter() - begun
    reply = completion.reply
    episode.messages = (*episode.messages, Message("assistant", reply.text, reply))
    episode.receipts = (*episode.receipts, completion.receipt)
    return None


def _failure(environment: Environment, failed: ModelFailure) -> Failure:
    if isinstance(environment, NamesPolicyFailures):
        return environment.policy_failed(failed)
    return Failure(failed.kind, "policy", failed.reason)
