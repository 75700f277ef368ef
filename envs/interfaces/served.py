"""One environment as a service gives it to others: rows are read, steps made and replies graded; nothing that fails becomes a number.

What HTTP and NeMo Gym's wire have in common: it knows neither. ``grade`` makes the same transition as a rollout, so that a reply gets
the same outcome and reward wherever it is graded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gavel.envs.endings import called_in_vain
from gavel.envs.sources import SourceAdapter
from gavel.envs.tasks import read_task
from gavel.envs.types import (
    Digests,
    Environment,
    Finish,
    Observe,
    Opening,
    Outcome,
    Result,
    RewardPolicy,
    ServiceNeeded,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.judges.bindings import Binding, parse_verifier
from gavel.models.errors import ConfigError, GavelError, InputError, nearest, shorten
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.types import Message, Receipt, Reply

_T = TypeVar("_T")

FALLBACK = 0.0
POLICY = "policy"
"""The model's name in a reply that came without one."""

Said = str | Reply | Sequence[Message] | Transcript
"""What is graded: the text of one reply, one reply, or everything that was said, the task's own messages first."""


class TranscriptError(InputError):
    """What was said does not fit the task, or there is nothing in it to grade."""


@dataclass(frozen=True, slots=True)
class ServedEnvironment:
    """One environment with its reward.

    Args:
        name: what it is served as.
        environment: makes the transitions of an episode.
        reward: applied to graded outcomes.
        bindings: the bound judges; a task must name one of them.
        digests: stored in each result.
        adapters: the sources whose rows are taken besides our own.
        deadline: seconds for one transition.
        grader: grades what is complete, without the services that ``environment`` calls besides its judge; None: ``environment``.
    """

    name: str
    environment: Environment
    reward: RewardPolicy
    bindings: Mapping[str, Binding]
    digests: Digests
    adapters: tuple[SourceAdapter, ...] = ()
    deadline: float = 900.0
    grader: Environment | None = None

    def read_task(self, raw: Mapping[str, Any]) -> Task:
        """Read a task: a row of ours (``schema`` is ``gavel.task/1``), or one of a source of this environment.

        Raises:
            TaskError: names the field; ``kind`` is what an invalid task is recorded as.
        """
        task = read_task(raw, self.environment, self.adapters)
        self._check_verifier(task.verifier)
        return task

    def transcript(self, task: Task, said: Said) -> Transcript:
        """Return what was said as a transcript.

        An assistant's message behind the task's own ones that brings no ``reply`` gets one: its content, finished with ``stop``.

        Raises:
            TranscriptError: it does not begin with the task's messages.
        """
        if isinstance(said, str):
            said = Reply(said, "stop", POLICY)
        if isinstance(said, Reply):
            return Transcript((*task.messages, Message("assistant", said.text, said)))
        messages = said.messages if isinstance(said, Transcript) else tuple(said)
        own = len(task.messages)
        for place, message in enumerate(task.messages):
            found = messages[place] if place < len(messages) else None
            if found is None or (found.role, found.content) != (message.role, message.content):
                raise TranscriptError(
                    "the messages are not those of the task", field=f"messages.{place}",
                    found="(no message)" if found is None else shorten(f"{found.role}: {found.content}"),
                    allowed=shorten(f"{message.role}: {message.content}"), remedy="begin with the task's own messages, or send `reply`",
                )  # fmt: skip
        return Transcript((*messages[:own], *(_replied(message) for message in messages[own:])))

    async def open(self, task: Task) -> Opening | Finish:
        """Return the messages an episode starts with, or an ungraded end. Raises nothing but cancellation."""
        return await self._bounded(lambda: self.environment.open(task))

    async def step(self, task: Task, transcript: Transcript) -> Observe | Finish:
        """Say what follows the newest reply. Raises nothing but cancellation: a failure is an ungraded end.

        Where the newest message is no reply, the episode must be over: nobody speaks twice in a row.
        """
        if not transcript.messages or transcript.messages[-1].reply is None:
            return await self._graded(task, transcript)
        return await self._bounded(lambda: self.environment.step(task, transcript))

    async def grade(self, task: Task | Mapping[str, Any], said: Said, *, rollout_index: int = 0, attempt: int = 1) -> Result:
        """Grade what a policy said.

        Args:
            task: as ``read_task`` returned it, or still to be read.
            said: see ``Said``; a conversation must be complete.

        Returns:
            Status ``graded``, ``judge_error`` with a typed failure, or ``invalid_task``. A conversation that is not over yet, or holds
            no reply, is ``gavel:episode_cut``. Raises nothing but cancellation.
        """
        started, begun = time.time(), time.perf_counter()
        try:
            read = task if isinstance(task, Task) else self.read_task(task)
        except TaskError as failed:
            return self.invalid(failed, task if isinstance(task, Mapping) else {}, rollout_index=rollout_index)
        try:
            transcript = self.transcript(read, said)
        except TranscriptError as failed:
            transcript, finish = Transcript(read.messages), _failed(FailureKind.VERIFIER_ERROR, "verifier", str(failed))
        else:
            finish = await self._graded(read, transcript)
        seconds = time.perf_counter() - begun
        timing = Timing(started, 0.0, seconds, seconds)
        return self.result(read, transcript, finish, timing, rollout_index=rollout_index, attempt=attempt)

    def result(
        self, task: Task, transcript: Transcript, finish: Finish, timing: Timing, *, rollout_index: int = 0, attempt: int = 1
    ) -> Result:
        """Return the row of an episode that ended with ``finish``; a reward policy that refuses leaves it ungraded."""
        outcome = finish.outcome
        reward = None
        if outcome.graded:
            try:
                reward = self.reward.reward(outcome)
            except GavelError as failed:
                outcome = _without_verdict(outcome, str(failed))
            except Exception as failed:  # noqa: BLE001 - the boundary of a reward policy's own code
                outcome = _without_verdict(outcome, f"{type(failed).__name__}: {failed}")
        return Result(
            task_id=task.task_id, task_digest=task.digest, rollout_index=rollout_index, attempt=attempt,
            status="judge_error" if reward is None else "graded", transcript=transcript + finish.messages, outcome=outcome,
            reward=reward, receipts=_receipts(transcript) + finish.receipts, timing=timing, digests=self.digests,
            metadata=task.metadata, fallback_reward=FALLBACK if reward is None else None,
        )  # fmt: skip

    def invalid(self, error: TaskError, raw: Mapping[str, Any], *, rollout_index: int = 0) -> Result:
        """Return the row of a task that cannot be used."""
        found = raw.get("task_id", raw.get("id"))
        return Result(
            task_id=str(found) if isinstance(found, str | int) and not isinstance(found, bool) else "", task_digest="",
            rollout_index=rollout_index, attempt=1, status="invalid_task", transcript=Transcript(),
            outcome=Outcome("", details={"should_skip_rollout": True}, failure=Failure(error.kind, "task", str(error))),
            reward=None, receipts=(), timing=Timing(time.time(), 0.0, 0.0, 0.0), digests=self.digests, metadata={},
        )  # fmt: skip

    async def _graded(self, task: Task, transcript: Transcript) -> Finish:
        grader = self.grader or self.environment
        ends_with_reply = bool(transcript.messages) and transcript.messages[-1].reply is not None
        if not ends_with_reply and not getattr(grader, "speaks_first", False):
            return _failed(FailureKind.EPISODE_CUT, "verifier", "the last message is no reply of the policy: nothing to grade")
        said = await self._bounded(lambda: grader.step(task, transcript))
        return said if isinstance(said, Finish) else _not_over()

    async def _bounded(self, work: Callable[[], Awaitable[_T]]) -> _T | Finish:
        """The boundary where every failure of a transition becomes an ungraded end."""
        try:
            async with asyncio.timeout(self.deadline) as limit:
                return await work()
        except TimeoutError as failed:
            if not limit.expired():
                return _failed(FailureKind.VERIFIER_ERROR, "verifier", f"TimeoutError: {failed}")
            return _failed(FailureKind.TRANSPORT_TIMEOUT, "verifier", f"it took longer than the deadline of {self.deadline:g} s")
        except ServiceNeeded:
            return _not_over()
        except ModelFailure as failed:
            return called_in_vain(failed)
        except TaskError as failed:
            return _failed(failed.kind, "task", str(failed))
        except GavelError as failed:
            return _failed(FailureKind.VERIFIER_ERROR, "verifier", str(failed))
        except Exception as failed:  # noqa: BLE001 - the boundary of an environment's own code: a bug there must not become a reward
            return _failed(FailureKind.VERIFIER_ERROR, "verifier", f"{type(failed).__name__}: {failed}")

    def _check_verifier(self, verifier: str) -> None:
        try:
            target, name = parse_verifier(verifier)
        except ConfigError as failed:
            raise TaskError(failed.problem, field="verifier", found=failed.found, allowed=failed.allowed) from None
        if name not in self.bindings:
            near = nearest(name, self.bindings)
            raise TaskError(
                "there is no such binding", field="verifier", found=shorten(verifier), allowed=", ".join(self.bindings),
                remedy=f"did you mean {target}/{near[0]}?" if near else "",
            )  # fmt: skip
        targets = self.bindings[name].rubric.targets
        if target not in targets:
            raise TaskError(
                f"the rubric of binding {name} does not take this target format", field="verifier", found=shorten(verifier),
                allowed=", ".join(f"{target}/{name}" for target in targets),
            )  # fmt: skip


def _replied(message: Message) -> Message:
    if message.role != "assistant" or message.reply is not None:
        return message
    return replace(message, reply=Reply(message.content, "stop", POLICY))


def _receipts(transcript: Transcript) -> tuple[Receipt, ...]:
    return tuple(receipt for message in transcript.messages for receipt in message.receipts)


def _failed(kind: FailureKind, stage: str, reason: str) -> Finish:
    return Finish(Outcome("", failure=Failure(kind, stage, reason)))


def _not_over() -> Finish:
    return _failed(
        FailureKind.EPISODE_CUT, "verifier", "the conversation is not over: it goes on with a step, and is graded at its end"
    )


def _without_verdict(outcome: Outcome, reason: str) -> Outcome:
    return replace(outcome, label="", failure=Failure(FailureKind.VERIFIER_ERROR, "verifier", f"the reward policy refused: {reason}"))
