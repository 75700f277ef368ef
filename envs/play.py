"""The one boundary where an episode becomes a ``Result``: transitions are bounded, rewards applied, failures typed.

Rollouts, the HTTP service, NeMo Gym's forms, the NeMo-RL actor and TRL's reward function all go through
``EpisodePlayer``, so that a failure has one answer wherever it happens:

==========================================  =================  ==================================  ============
what happened                               status             failure kind                        stage
==========================================  =================  ==================================  ============
the environment refuses the row             ``invalid_task``   that of the ``TaskError``           ``task``
a judge's call failed                       ``judge_error``    that of the call                    ``judge``
a simulator's call failed                   ``judge_error``    ``gavel:simulation_failed``         ``simulator``
the policy's call failed                    ``judge_error``    that of the call, or the            ``policy``
                                                               environment's own
a transition raised, or let a cancellation  ``judge_error``    ``verifier_error``                  ``verifier``
slip that nobody asked for
a transition took longer than its deadline  ``judge_error``    ``transport_timeout``               ``verifier``
the reward policy raised                    ``judge_error``    ``verifier_error``                  ``reward``
==========================================  =================  ==================================  ============

What passes: cancellation of the row itself, ``KeyboardInterrupt``, whatever a handler of a signal raised to end the
process, and ``PersistenceError`` of the caller's own record.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any, TypeVar

from gavel.envs.draws import number_draw
from gavel.envs.endings import end_failed_call, make_encodable
from gavel.envs.episode import EpisodeRecord, Policy, Stopwatch
from gavel.envs.types import (
    Digests,
    Environment,
    Finish,
    NamesPolicyFailures,
    Observe,
    Opening,
    Outcome,
    Result,
    Reward,
    RewardPolicy,
    ServiceNeeded,
    Status,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.judges.answers import keep_answers
from gavel.judges.types import AnswerLog
from gavel.models.errors import GavelError
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.files import PersistenceError
from gavel.models.types import Receipt

T = TypeVar("T")

FALLBACK_REWARD = 0.0
"""Recorded beside an ungraded row; never averaged into anything."""


class PolicyNeeded(Exception):
    """The episode is not complete: it needs a policy or a simulator, and there is none to ask (regrading)."""


@dataclass(frozen=True, slots=True)
class EpisodePlayer:
    """Plays episodes of one environment and makes their results.

    Args:
        environment: whose transitions are made.
        reward: applied to graded outcomes.
        digests: stored in each result.
        deadline: seconds for one transition; None: no bound.
        largest_reward: rewards beyond ± this are refused, for a trainer could not compute with them.
    """

    environment: Environment
    reward: RewardPolicy
    digests: Digests
    deadline: float | None = None
    largest_reward: float = math.inf

    async def open_episode(self, task: Task) -> Opening | Finish:
        """Return the messages an episode starts with, or an ungraded end.

        Raises:
            ServiceNeeded: a service would have to be called that is withheld.
        """
        return await self.guard_work(lambda: self.environment.open(task))

    async def take_step(self, task: Task, transcript: Transcript, log: AnswerLog | None = None) -> Observe | Finish:
        """Say what follows the newest message, or how the episode ended; ``log`` keeps the judge's answers.

        Raises:
            ServiceNeeded: a service would have to be called that is withheld.
            PersistenceError: ``log`` could not be written.
        """

        async def run_step() -> Observe | Finish:
            with keep_answers(log):
                return await self.environment.step(task, transcript)

        return await self.guard_work(run_step)

    async def play_episode(
        self,
        task: Task,
        policy: Policy | None,
        record: EpisodeRecord,
        watch: Stopwatch,
        *,
        rollout_index: int,
        attempt: int = 1,
    ) -> Result:
        """Play an episode to its end, from wherever its record stands.

        Args:
            policy: asked for each reply; None where nobody may be asked.
            record: told each opening, reply and observation before anything is done with it.
            watch: where the seconds are counted.
            rollout_index: which draw of the task this is, from 0.
            attempt: which attempt at this row this is, from 1.

        Raises:
            PolicyNeeded: ``policy`` is None and a reply is missing, or a withheld service would have to be called.
            PersistenceError: the record could not be written.
        """
        started = time.time()
        try:
            with number_draw(rollout_index):
                finish = await self._play_on(task, policy, record, watch, rollout_index)
        except ServiceNeeded:
            raise PolicyNeeded from None
        total = time.perf_counter() - watch.begun
        return self.make_result(
            task,
            record.state.transcript,
            replace(finish, receipts=(*record.state.receipts, *finish.receipts)),
            Timing(started, watch.policy_s, watch.step_s, total),
            rollout_index=rollout_index,
            attempt=attempt,
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
        metadata: Mapping[str, Any] | None = None,
    ) -> Result:
        """Return the row of an episode that ended with ``finish``, whose receipts are those of the whole episode.

        A reward policy that raises leaves the row ungraded; ``metadata`` None keeps the task's.
        """
        outcome, reward = self._apply_reward(finish.outcome)
        status = _read_status(outcome)
        if status == "invalid_task":
            outcome = replace(outcome, details={**(outcome.details or {}), **_SKIP})
        return Result(
            task_id=task.task_id,
            task_digest=task.digest,
            rollout_index=rollout_index,
            attempt=attempt,
            status=status,
            transcript=transcript + finish.messages,
            outcome=outcome,
            reward=reward,
            receipts=finish.receipts,
            timing=timing,
            digests=self.digests,
            metadata=task.metadata if metadata is None else metadata,
            fallback_reward=FALLBACK_REWARD if status == "judge_error" else None,
        )

    async def _play_on(
        self, task: Task, policy: Policy | None, record: EpisodeRecord, watch: Stopwatch, rollout_index: int
    ) -> Finish:
        if record.state.messages is None:
            opening = await self.open_episode(task)
            if isinstance(opening, Finish):
                return opening
            record.add_opening(opening, own=opening == Opening(task.messages))
        while True:
            if not record.state.awaits_step:
                if policy is None:
                    raise PolicyNeeded
                with watch.measure_part("policy"):
                    failed = await self._ask_policy(task, policy, record, rollout_index)
                if failed is not None:
                    return failed
            with watch.measure_part("step"):
                said = await self.take_step(task, record.state.transcript, record)
            if isinstance(said, Finish):
                return said
            record.add_observation(said)

    async def _ask_policy(self, task: Task, policy: Policy, record: EpisodeRecord, rollout_index: int) -> Finish | None:
        """Add the policy's next reply; return the ungraded end of an episode whose policy failed."""
        try:
            completion = await policy.draw_reply(record.state.transcript.messages, rollout_index, task.task_id)
        except ModelFailure as failed:
            failure = Failure(failed.kind, "policy", failed.reason)
            if isinstance(self.environment, NamesPolicyFailures):
                failure = self.environment.policy_failed(failed)
            return Finish(Outcome("", failure=failure), receipts=failed.receipts)
        except BaseException as failed:  # noqa: BLE001 - the boundary of a model's own code
            return end_bug(failed, "policy")
        record.add_reply(completion)
        return None

    async def guard_work(self, work: Callable[[], Awaitable[T]]) -> T | Finish:
        """Run a part of an episode within the deadline; whatever fails in it becomes an ungraded end.

        Raises:
            ServiceNeeded: a service would have to be called that is withheld.
            PersistenceError: the caller's own record could not be written.
        """
        try:
            async with asyncio.timeout(self.deadline) as limit:
                return await work()
        except (ServiceNeeded, PersistenceError):
            raise
        except TimeoutError as failed:
            if not limit.expired():
                return end_bug(failed, "verifier")
            return end_ungraded(
                FailureKind.TRANSPORT_TIMEOUT,
                "verifier",
                f"the step took longer than its deadline of {self.deadline:g} s",
            )
        except ModelFailure as failed:
            return end_failed_call(failed)
        except TaskError as failed:
            return end_ungraded(failed.kind, "task", str(failed))
        except GavelError as failed:
            return end_ungraded(FailureKind.VERIFIER_ERROR, "verifier", str(failed))
        except BaseException as failed:  # noqa: BLE001 - the boundary of an environment's own code: a bug there is no reward
            return end_bug(failed, "verifier")

    def _apply_reward(self, outcome: Outcome) -> tuple[Outcome, Reward | None]:
        if not outcome.graded:
            return outcome, None
        name = type(self.reward).__name__
        try:
            reward = self.reward.reward(outcome)
        except GavelError as failed:
            return _withdraw_verdict(outcome, f"the reward policy {name} refused: {failed}"), None
        except Exception as failed:  # noqa: BLE001 - the boundary of a reward policy's own code
            reason = (
                f"the reward policy {name} failed on the label {outcome.label!r}: {type(failed).__name__}: {failed}"
            )
            return _withdraw_verdict(outcome, reason), None
        if abs(reward.value) > self.largest_reward:
            reason = (
                f"the reward policy {name} gave {reward.value:g}; a trainer can compute with "
                f"±{self.largest_reward:g} at most"
            )
            return _withdraw_verdict(outcome, reason), None
        return outcome, reward


_SKIP: Mapping[str, Any] = {"should_skip_rollout": True}


def make_invalid(
    error: TaskError,
    task_id: str,
    digests: Digests,
    *,
    rollout_index: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Result:
    """Return the row of a task that could not be read; it has no task digest."""
    return Result(
        task_id=task_id,
        task_digest="",
        rollout_index=rollout_index,
        attempt=1,
        status="invalid_task",
        transcript=Transcript(),
        outcome=Outcome("", details=_SKIP, failure=Failure(error.kind, "task", str(error))),
        reward=None,
        receipts=(),
        timing=Timing(time.time(), 0.0, 0.0, 0.0),
        digests=digests,
        metadata=metadata or {},
    )


def end_ungraded(kind: FailureKind, stage: str, reason: str) -> Finish:
    """Return the end of an episode that has no verdict."""
    return Finish(Outcome("", failure=Failure(kind, stage, make_encodable(reason))))


def end_bug(failed: BaseException, stage: str) -> Finish:
    """Return the ungraded end that a bug in somebody's code makes.

    Raises:
        BaseException: ``failed`` itself where it must pass: an interrupt, a signal to end, or the cancellation of the
            row.
    """
    cancelled = isinstance(failed, asyncio.CancelledError) and _is_cancelled()
    if cancelled or isinstance(failed, KeyboardInterrupt | GeneratorExit) or _is_process_end(failed):
        raise failed
    return end_ungraded(FailureKind.VERIFIER_ERROR, stage, f"{type(failed).__name__}: {failed}")


def list_receipts(transcript: Transcript) -> tuple[Receipt, ...]:
    """Return the receipts that the messages of a transcript carry, in order."""
    return tuple(receipt for message in transcript.messages for receipt in message.receipts)


def _read_status(outcome: Outcome) -> Status:
    if outcome.failure is None:
        return "graded"
    return "invalid_task" if outcome.failure.stage == "task" else "judge_error"


def _withdraw_verdict(outcome: Outcome, reason: str) -> Outcome:
    return replace(outcome, label="", failure=Failure(FailureKind.VERIFIER_ERROR, "reward", make_encodable(reason)))


_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _is_process_end(failed: BaseException) -> bool:
    """Tell whether the handler of a signal raised this: it runs in the middle of whatever code there is, and is no bug
    of that.
    """
    handlers = [
        handler.__func__ if isinstance(handler, MethodType) else handler for handler in map(signal.getsignal, _TO_END)
    ]
    codes = {handler.__code__ for handler in handlers if isinstance(handler, FunctionType)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(failed.__traceback__))


def _is_cancelled() -> bool:
    """Tell whether the row's own task is being cancelled; else a ``CancelledError`` is one that somebody's code let
    slip.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
