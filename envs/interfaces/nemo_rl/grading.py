"""One step of one sample: the environment's transition, the reward, the ledger. What fails becomes a typed failure, never a number."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gavel.envs.endings import called_in_vain
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, Verdict
from gavel.envs.interfaces.nemo_rl.sample import Sample, next_info, read_sample
from gavel.envs.types import (
    Digests,
    Environment,
    Finish,
    Observe,
    Outcome,
    Result,
    Reward,
    RewardError,
    RewardPolicy,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.judges.answers import answering
from gavel.models.codec import load
from gavel.models.errors import GavelError
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.files import PersistenceError
from gavel.models.types import Message, Receipt, Reply, Usage

LARGEST = 1e18
"""The largest reward: NeMo-RL squares it in 32 bits, and a step with one infinity in it is lost."""
PLACEHOLDER = 0.0
"""The reward of a sample that has none: finite, because NeMo-RL needs a number there; the driver takes the sample out."""
TASKS_KEPT = 8192
RESULTS_KEPT = 16_384


class NoDriver(GavelError):
    """The driver's hooks are not installed, so that an ungraded sample could not be kept out of training."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a sample's step gives NeMo-RL."""

    observation: str
    info: dict[str, Any] | None
    reward: float
    terminated: bool


class Grader:
    """Steps samples.

    Args:
        environment: whose transitions are made.
        reward: applied to graded outcomes.
        ledger: asked before anything is graded, told before anything is returned.
        digests: stored in each result.
        deadline: seconds for one step of one sample.
        policy_model: the name of the policy in replies.
    """

    def __init__(
        self, environment: Environment, reward: RewardPolicy, ledger: Ledger, digests: Digests, *, deadline: float, policy_model: str
    ) -> None:
        self._environment, self._reward, self._ledger, self._digests = environment, reward, ledger, digests
        self._deadline, self._policy_model = deadline, policy_model
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._results: OrderedDict[str, Result] = OrderedDict()

    async def step(self, reply: str, info: Mapping[str, Any]) -> Stepped:
        """Answer the policy's newest reply.

        Args:
            reply: its text, control tokens left out.
            info: the sample's ``extra_env_info``.

        Raises:
            NoDriver: the sample was not stamped, or does not say how the reply ended.
            RewardError: the reward policy cannot reward this outcome, or not with a number that fits. Every such outcome would fail, so
                leaving them out would bend what is trained on.
        """
        reply = _encodable(reply)
        sample = read_sample(info)
        if sample.uid is None or sample.ending is None:
            raise NoDriver(
                "this rollout runs without the driver's hooks: an ungraded sample would be trained on as a zero\n"
                "  fix:     start the trainer with `python -m gavel.launch.nemo_rl_main --config FILE`"
            )
        if (known := self._ledger.find(sample.uid)) is not None:
            return _ended(known)
        started, begun = time.time(), time.perf_counter()
        message = Message("assistant", reply, _reply(reply, sample.ending, self._policy_model))
        task: Task | None = None
        try:
            task = self._task(sample)
            said = await self._transition(task, sample, message)
        except ModelFailure as failed:
            said = called_in_vain(ModelFailure(failed.kind, _encodable(failed.reason), failed.receipts))
        except PersistenceError as failed:
            said = _failed(FailureKind.PERSISTENCE_FAILED, "store", str(failed))
        except TaskError as failed:
            said = _failed(failed.kind, "task", str(failed))
        except GavelError as failed:
            said = _failed(FailureKind.VERIFIER_ERROR, "verifier", str(failed))
        except GeneratorExit:
            raise
        except BaseException as failed:  # the boundary of an environment's code: no bug there, nor an exit, may end the actor
            if isinstance(failed, asyncio.CancelledError) and _cancelled():
                raise
            said = _failed(FailureKind.VERIFIER_ERROR, "verifier", f"{type(failed).__name__}: {failed}")
        if isinstance(said, Observe):
            observed = _observed(sample, info, message, said)
            if isinstance(observed, Stepped):
                return observed
            said = observed
        seconds = time.perf_counter() - begun
        return self._finish(task, sample, message, said, Timing(started, 0.0, seconds, seconds))

    def verdicts(self, uids: list[str]) -> tuple[list[Verdict | None], list[Result]]:
        """Return the verdicts by uid, None where there is none, and the results that are still held; these are let go."""
        results = [self._results.pop(uid) for uid in uids if uid in self._results]
        self._ledger.tidy()
        return [self._ledger.find(uid) for uid in uids], results

    def _task(self, sample: Sample) -> Task:
        task = self._tasks.get(sample.task)
        if task is None:
            raw = load(Task, orjson.loads(sample.task))
            task = replace(raw, target=self._environment.parse_target(raw.target))
            self._tasks[sample.task] = task
            if len(self._tasks) > TASKS_KEPT:
                self._tasks.popitem(last=False)
        return task

    async def _transition(self, task: Task, sample: Sample, message: Message) -> Observe | Finish:
        if sample.too_long is not None:
            return _failed(FailureKind.CONTEXT_OVERFLOW, "policy", sample.too_long)
        assert sample.uid is not None
        transcript = Transcript((*task.messages, *sample.history, message))
        try:
            async with asyncio.timeout(self._deadline) as limit:
                with answering(self._ledger.answers(sample.uid, sample.turn)):
                    return await self._environment.step(task, transcript)
        except TimeoutError:
            if not limit.expired():
                raise
            return _failed(FailureKind.TRANSPORT_TIMEOUT, "verifier", f"the step took longer than its deadline of {self._deadline:g} s")

    def _finish(self, task: Task | None, sample: Sample, message: Message, finish: Finish, timing: Timing) -> Stepped:
        assert sample.uid is not None
        outcome = finish.outcome
        reward = self._rewarded(outcome) if outcome.graded else None
        messages = task.messages if task is not None else ()
        result = Result(
            task_id=task.task_id if task else "", task_digest=task.digest if task else "", rollout_index=sample.rollout, attempt=1,
            status="graded" if reward is not None else "judge_error",
            transcript=Transcript((*messages, *sample.history, message, *finish.messages)), outcome=outcome, reward=reward,
            receipts=_receipts(sample, finish), timing=timing, digests=self._digests, metadata=dict(task.metadata) if task else {},
            fallback_reward=None if reward is not None else PLACEHOLDER,
        )  # fmt: skip
        try:
            verdict = self._ledger.add(sample.uid, sample.turn, sample.split, result)
        except (PersistenceError, TypeError) as failed:  # a grade that is not stored does not count; TypeError: it is no JSON
            failure = Failure(FailureKind.PERSISTENCE_FAILED, "store", _encodable(str(failed)))
            verdict = _unstored(sample.uid, sample.turn, self._environment.name, failure, result)
            self._ledger.hold(verdict)
            return _ended(verdict)
        self._results[sample.uid] = result
        if len(self._results) > RESULTS_KEPT:
            self._results.popitem(last=False)
        return _ended(verdict)

    def _rewarded(self, outcome: Outcome) -> Reward:
        try:
            reward = self._reward.reward(outcome)
        except RewardError:
            raise
        except Exception as failed:  # the boundary of a reward policy's own code
            raise RewardError(
                "the reward policy failed", field="reward", found=f"{type(failed).__name__} on the label {outcome.label!r}: {failed}",
                remedy="mend the policy: every outcome like this one would fail",
            ) from failed  # fmt: skip
        if abs(reward.value) > LARGEST:
            raise RewardError(
                "a trainer cannot compute with this reward", field="value", found=str(reward.value), allowed=f"±{LARGEST:g}",
            )  # fmt: skip
        return reward


def _cancelled() -> bool:
    """Tell whether this task was cancelled; else a ``CancelledError`` is one that an environment let slip."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _encodable(text: str) -> str:
    """Return a text that can be stored and sent: half of a surrogate pair, which no JSON carries, becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _unstored(uid: str, turn: int, env: str, failure: Failure, result: Result) -> Verdict:
    return Verdict(uid, turn, env, "", None, {}, failure, len(result.receipts), result.timing.total_s)


def _reply(text: str, ending: Mapping[str, Any], model: str) -> Reply:
    usage = Usage(int(ending["prompt_tokens"]), int(ending["completion_tokens"]))
    return Reply(text, str(ending["finish_reason"]), model, usage, think_prefilled=bool(ending["think_prefilled"]))


def _receipts(sample: Sample, finish: Finish) -> tuple[Receipt, ...]:
    return tuple(receipt for message in sample.history for receipt in message.receipts) + finish.receipts


def _ended(verdict: Verdict) -> Stepped:
    """The last observation is empty: any text would count against the sample's length, and mark a good one truncated."""
    return Stepped("", None, PLACEHOLDER if verdict.reward is None else verdict.reward, terminated=True)


def _observed(sample: Sample, info: Mapping[str, Any], message: Message, said: Observe) -> Stepped | Finish:
    if sample.frame is None or any(spoken.role != "user" for spoken in said.messages) or len(said.messages) != 1:
        found = "no turn framing" if sample.frame is None else ", ".join(spoken.role for spoken in said.messages) or "no message"
        return _failed(FailureKind.VERIFIER_ERROR, "verifier", f"a turn goes on with one user's message and framing; found {found}")
    assert sample.ending is not None
    text = sample.frame.turn(said.messages[0].content, ended=sample.ending["last_id"] == sample.frame.end_id)
    return Stepped(text, next_info(info, (message, replace(said.messages[0], receipts=said.receipts))), PLACEHOLDER, terminated=False)


def _failed(kind: FailureKind, stage: str, reason: str) -> Finish:
    return Finish(Outcome("", failure=Failure(kind, stage, _encodable(reason))))
