"""One environment as a service gives it to others: rows are read, steps made and replies graded; nothing that fails
becomes a number.

What HTTP and NeMo Gym's wire have in common: it knows neither. ``grade_episode`` makes the same transition as a
rollout, so that a reply gets the same outcome and reward wherever it is graded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gavel.envs.episode import MemoryRecord, Policy, Stopwatch
from gavel.envs.play import EpisodePlayer, end_ungraded, list_receipts, make_invalid
from gavel.envs.sources import SourceAdapter
from gavel.envs.tasks import read_task
from gavel.envs.types import (
    Digests,
    Environment,
    Finish,
    Observe,
    Opening,
    Result,
    RewardPolicy,
    ServiceNeeded,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.judges.bindings import Binding, parse_verifier
from gavel.judges.types import is_target_taken
from gavel.models.errors import ConfigError, InputError, find_nearest, shorten_value
from gavel.models.failures import FailureKind
from gavel.models.types import Message, Reply

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
        grader: grades what is complete, without the services that ``environment`` calls besides its judge; None:
            ``environment``.
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
        if not isinstance(raw, Mapping):  # a caller's own code may give anything
            raise TaskError(
                "a task is a row",
                found=f"{type(raw).__name__}: {shorten_value(raw)}",
                allowed="an object with the task's fields",
            )
        task = read_task(raw, self.environment, self.adapters)
        self._check_verifier(task.verifier)
        return task

    def make_transcript(self, task: Task, said: Said) -> Transcript:
        """Return what was said as a transcript.

        An assistant's message behind the task's own ones that brings no ``reply`` gets one: its content, finished with
        ``stop``.

        Raises:
            TranscriptError: it does not begin with the task's messages, or is of another type.
        """
        if isinstance(said, str):
            said = Reply(said, "stop", POLICY)
        if isinstance(said, Reply):
            return Transcript((*task.messages, Message("assistant", said.text, said)))
        messages = _read_messages(said)
        own = len(task.messages)
        for place, message in enumerate(task.messages):
            found = messages[place] if place < len(messages) else None
            if found is None or (found.role, found.content) != (message.role, message.content):
                raise TranscriptError(
                    "the messages are not those of the task",
                    field=f"messages.{place}",
                    found="(no message)" if found is None else shorten_value(f"{found.role}: {found.content}"),
                    allowed=shorten_value(f"{message.role}: {message.content}"),
                    remedy="begin with the task's own messages, or send `reply`",
                )
        return Transcript((*messages[:own], *(_add_reply(message) for message in messages[own:])))

    @property
    def player(self) -> EpisodePlayer:
        """Plays this environment's episodes."""
        return EpisodePlayer(self.environment, self.reward, self.digests, self.deadline)

    async def open_episode(self, task: Task) -> Opening | Finish:
        """Return the messages an episode starts with, or an ungraded end. Raises nothing but cancellation."""
        try:
            return await self.player.open_episode(task)
        except ServiceNeeded:
            return _end_unfinished()

    async def step_episode(self, task: Task, transcript: Transcript) -> Observe | Finish:
        """Say what follows the newest reply. Raises nothing but cancellation: a failure is an ungraded end.

        Where the newest message is no reply, the episode must be over: nobody speaks twice in a row.
        """
        if not transcript.messages or transcript.messages[-1].reply is None:
            return await self._grade_transcript(task, transcript)
        return await self._take_step(self.player, task, transcript)

    async def grade_episode(
        self, task: Task | Mapping[str, Any], said: Said, *, rollout_index: int = 0, attempt: int = 1
    ) -> Result:
        """Grade what a policy said.

        Args:
            task: as ``read_task`` returned it, or still to be read.
            said: see ``Said``; a conversation must be complete.

        Returns:
            Status ``graded``, ``judge_error`` with a typed failure, or ``invalid_task``. A conversation that is not
            over yet, or holds no reply, is ``gavel:episode_cut``. Raises nothing but cancellation.
        """
        started, begun = time.time(), time.perf_counter()
        try:
            read = task if isinstance(task, Task) else self.read_task(task)
        except TaskError as failed:
            return self.make_invalid_result(
                failed, task if isinstance(task, Mapping) else {}, rollout_index=rollout_index
            )
        try:
            transcript = self.make_transcript(read, said)
        except TranscriptError as failed:
            transcript, finish = (
                Transcript(read.messages),
                end_ungraded(FailureKind.VERIFIER_ERROR, "verifier", str(failed)),
            )
        else:
            finish = await self._grade_transcript(read, transcript)
        seconds = time.perf_counter() - begun
        timing = Timing(started, 0.0, seconds, seconds)
        return self.make_result(read, transcript, finish, timing, rollout_index=rollout_index, attempt=attempt)

    async def play_episode(self, task: Task, policy: Policy, *, rollout_index: int, attempt: int) -> Result:
        """Play one episode to its end; the result's transcript holds every message. Raises nothing but cancellation."""
        return await self.player.play_episode(
            task, policy, MemoryRecord(), Stopwatch(), rollout_index=rollout_index, attempt=attempt
        )

    def make_result(
        self,
        task: Task,
        transcript: Transcript,
        finish: Finish,
        timing: Timing,
        *,
        rollout_index: int = 0,
        attempt: int = 1,
    ) -> Result:
        """Return the row of an episode that ended with ``finish``; the receipts of its messages come before those of
        its end.
        """
        whole = replace(finish, receipts=(*list_receipts(transcript), *finish.receipts))
        return self.player.make_result(task, transcript, whole, timing, rollout_index=rollout_index, attempt=attempt)

    def make_invalid_result(self, error: TaskError, raw: Mapping[str, Any], *, rollout_index: int = 0) -> Result:
        """Return the row of a task that cannot be used."""
        found = raw.get("task_id", raw.get("id"))
        task_id = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
        return make_invalid(error, task_id, self.digests, rollout_index=rollout_index)

    async def _grade_transcript(self, task: Task, transcript: Transcript) -> Finish:
        grader = self.grader or self.environment
        ends_with_reply = bool(transcript.messages) and transcript.messages[-1].reply is not None
        if not ends_with_reply and not grader.info.speaks_first:
            return end_ungraded(
                FailureKind.EPISODE_CUT, "verifier", "the last message is no reply of the policy: nothing to grade"
            )
        said = await self._take_step(replace(self.player, environment=grader), task, transcript)
        return said if isinstance(said, Finish) else _end_unfinished()

    async def _take_step(self, player: EpisodePlayer, task: Task, transcript: Transcript) -> Observe | Finish:
        try:
            return await player.take_step(task, transcript)
        except ServiceNeeded:
            return _end_unfinished()

    def _check_verifier(self, verifier: str) -> None:
        try:
            target, name = parse_verifier(verifier)
        except ConfigError as failed:
            raise TaskError(failed.problem, field="verifier", found=failed.found, allowed=failed.allowed) from None
        if name not in self.bindings:
            near = find_nearest(name, self.bindings)
            raise TaskError(
                "there is no such binding",
                field="verifier",
                found=shorten_value(verifier),
                allowed=", ".join(self.bindings),
                remedy=f"did you mean {target}/{near[0]}?" if near else "",
            )
        rubric = self.bindings[name].rubric
        if not is_target_taken(rubric, target):
            raise TaskError(
                f"the rubric of binding {name} does not take this target format",
                field="verifier",
                found=shorten_value(verifier),
                allowed=", ".join(f"{target}/{name}" for target in rubric.targets),
            )


def _read_messages(said: object) -> tuple[Message, ...]:
    """Return the messages of what a caller's own code gave, whatever it is.

    Raises:
        TranscriptError: there are none in it.
    """
    messages = said.messages if isinstance(said, Transcript) else said
    if not isinstance(messages, Sequence) or not all(isinstance(message, Message) for message in messages):
        raise TranscriptError(
            "this is no reply",
            field="said",
            found=f"{type(said).__name__}: {shorten_value(said)}",
            allowed="a text, a Reply, or Messages",
        )
    return tuple(messages)


def _add_reply(message: Message) -> Message:
    if message.role != "assistant" or message.reply is not None:
        return message
    return replace(message, reply=Reply(message.content, "stop", POLICY))


def _end_unfinished() -> Finish:
    return end_ungraded(
        FailureKind.EPISODE_CUT,
        "verifier",
        "the conversation is not over: it goes on with a step, and is graded at its end",
    )
