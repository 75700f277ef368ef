"""One step of one sample: the environment's transition, the reward, the ledger.

What fails becomes a typed failure, never a number.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gavel.envs.endings import make_encodable
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, SampleVerdict
from gavel.envs.interfaces.nemo_rl.sample import Sample, make_next_info, read_sample
from gavel.envs.play import EpisodePlayer, end_ungraded
from gavel.envs.types import (
    Digests,
    Environment,
    Finish,
    Observe,
    Result,
    RewardPolicy,
    ServiceNeeded,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.models.codec import load
from gavel.models.errors import GavelError
from gavel.models.failures import Failure, FailureKind
from gavel.models.files import PersistenceError
from gavel.models.types import Message, Receipt, Reply, Usage

LARGEST = 1e18
"""The largest reward: NeMo-RL squares it in 32 bits, and a step with one infinity in it is lost."""
PLACEHOLDER = 0.0
"""The reward of a sample that has none: finite, because NeMo-RL needs a number there; the driver takes the sample
out.
"""
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


class SampleGrader:
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
        self,
        environment: Environment,
        reward: RewardPolicy,
        ledger: Ledger,
        digests: Digests,
        *,
        deadline: float,
        policy_model: str,
    ) -> None:
        self._environment, self._ledger, self._policy_model = environment, ledger, policy_model
        self._player = EpisodePlayer(environment, reward, digests, deadline, LARGEST)
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._results: OrderedDict[str, Result] = OrderedDict()

    async def step_sample(self, reply: str, info: Mapping[str, Any]) -> Stepped:
        """Answer the policy's newest reply.

        Args:
            reply: its text, control tokens left out.
            info: the sample's ``extra_env_info``.

        Raises:
            NoDriver: the sample was not stamped, or does not say how the reply ended.
        """
        reply = make_encodable(reply)
        sample = read_sample(info)
        if sample.uid is None or sample.ending is None:
            raise NoDriver(
                "this rollout runs without the driver's hooks: an ungraded sample would be trained on as a zero\n"
                "  fix:     start the trainer with `python -m gavel.launch.nemo_rl_main --config FILE`"
            )
        if (known := self._ledger.find(sample.uid)) is not None:
            return _make_ended(known)
        started, begun = time.time(), time.perf_counter()
        message = Message("assistant", reply, _make_reply(reply, sample.ending, self._policy_model))
        task, unusable = await self._read_task(sample)
        said = unusable or await self._take_step(task, sample, message)
        if isinstance(said, Observe):
            observed = _make_observed(sample, info, message, said)
            if isinstance(observed, Stepped):
                return observed
            said = observed
        seconds = time.perf_counter() - begun
        return self._finish_sample(task, sample, message, said, Timing(started, 0.0, seconds, seconds))

    async def end_sample(self, info: Mapping[str, Any], end: Finish) -> Stepped:
        """Store an end that came before a reply could be graded, such as a reply that was never drawn.

        Args:
            info: the sample's, stamped.
            end: ungraded, of ``play.end_ungraded``.
        """
        sample, started = read_sample(info), time.time()
        task, _ = await self._read_task(sample)
        return self._finish_sample(task, sample, None, end, Timing(started, 0.0, 0.0, 0.0))

    def is_known(self, uid: str) -> bool:
        """Tell whether a sample has ended."""
        return self._ledger.find(uid) is not None

    def take_verdicts(self, uids: list[str]) -> tuple[list[SampleVerdict | None], list[Result]]:
        """Return the verdicts by uid, None where there is none, and the results that are still held; these are let
        go.
        """
        results = [self._results.pop(uid) for uid in uids if uid in self._results]
        self._ledger.tidy_answers()
        return [self._ledger.find(uid) for uid in uids], results

    async def _read_task(self, sample: Sample) -> tuple[Task, Finish | None]:
        """Return the sample's task; an ungraded end beside it where the task cannot be used."""
        task = self._tasks.get(sample.task)
        if task is not None:
            return task, None
        try:
            raw = load(Task, orjson.loads(sample.task), error=TaskError)
        except (TaskError, orjson.JSONDecodeError) as failed:
            nameless = Task("", self._environment.name, "", (), {}, {})
            return nameless, end_ungraded(FailureKind.TASK_SCHEMA, "task", str(failed))

        async def parse_task() -> Task:
            return replace(raw, target=self._environment.parse_target(raw.target))

        read = await self._player.guard_work(parse_task)
        if isinstance(read, Finish):
            return raw, read
        self._tasks[sample.task] = read
        if len(self._tasks) > TASKS_KEPT:
            self._tasks.popitem(last=False)
        return read, None

    async def _take_step(self, task: Task, sample: Sample, message: Message) -> Observe | Finish:
        if sample.too_long is not None:
            return end_ungraded(FailureKind.CONTEXT_OVERFLOW, "policy", sample.too_long)
        assert sample.uid is not None
        transcript = Transcript((*task.messages, *sample.history, message))
        try:
            said = await self._player.take_step(task, transcript, self._ledger.get_answers(sample.uid, sample.turn))
        except PersistenceError as failed:
            return end_ungraded(FailureKind.PERSISTENCE_FAILED, "store", str(failed))
        except ServiceNeeded as failed:
            return end_ungraded(FailureKind.VERIFIER_ERROR, "verifier", f"the service {failed} is not started here")
        turns = self._environment.info.policy_turns
        if isinstance(said, Observe) and turns is not None and len(transcript.replies) >= turns:
            return end_ungraded(
                FailureKind.VERIFIER_ERROR,
                "verifier",
                f"{self._environment.name} declares episodes of at most {turns} replies (info.policy_turns), and "
                f"goes on after them",
            )
        return said

    def _finish_sample(
        self, task: Task, sample: Sample, message: Message | None, finish: Finish, timing: Timing
    ) -> Stepped:
        assert sample.uid is not None
        said = (message,) if message is not None else ()
        result = self._player.make_result(
            task,
            Transcript((*task.messages, *sample.history, *said)),
            replace(finish, receipts=_collect_receipts(sample, finish)),
            timing,
            rollout_index=sample.rollout,
        )
        try:
            verdict = self._ledger.add(sample.uid, sample.turn, sample.split, result)
        except (
            PersistenceError,
            TypeError,
        ) as failed:  # a grade that is not stored does not count; TypeError: it is no JSON
            failure = Failure(FailureKind.PERSISTENCE_FAILED, "store", make_encodable(str(failed)))
            verdict = _make_unstored(sample.uid, sample.turn, self._ledger.env, failure, result)
            self._ledger.hold_verdict(verdict)
            return _make_ended(verdict)
        self._results[sample.uid] = result
        if len(self._results) > RESULTS_KEPT:
            self._results.popitem(last=False)
        return _make_ended(verdict)


def _make_unstored(uid: str, turn: int, env: str, failure: Failure, result: Result) -> SampleVerdict:
    return SampleVerdict(uid, turn, env, "", None, {}, failure, len(result.receipts), result.timing.total_s)


def _make_reply(text: str, ending: Mapping[str, Any], model: str) -> Reply:
    usage = Usage(int(ending["prompt_tokens"]), int(ending["completion_tokens"]))
    return Reply(text, str(ending["finish_reason"]), model, usage, think_prefilled=bool(ending["think_prefilled"]))


def _collect_receipts(sample: Sample, finish: Finish) -> tuple[Receipt, ...]:
    return tuple(receipt for message in sample.history for receipt in message.receipts) + finish.receipts


def _make_ended(verdict: SampleVerdict) -> Stepped:
    """The last observation is empty: any text would count against the sample's length, and mark a good one
    truncated.
    """
    return Stepped("", None, PLACEHOLDER if verdict.reward is None else verdict.reward, terminated=True)


def _make_observed(sample: Sample, info: Mapping[str, Any], message: Message, said: Observe) -> Stepped | Finish:
    if sample.frame is None or any(spoken.role != "user" for spoken in said.messages) or len(said.messages) != 1:
        found = (
            "no turn framing"
            if sample.frame is None
            else ", ".join(spoken.role for spoken in said.messages) or "no message"
        )
        reason = f"a turn goes on with one user's message and framing; found {found}"
        return end_ungraded(FailureKind.VERIFIER_ERROR, "verifier", reason)
    assert sample.ending is not None
    text = sample.frame.make_turn(said.messages[0].content, ended=sample.ending["last_id"] == sample.frame.end_id)
    return Stepped(
        text,
        make_next_info(info, (message, replace(said.messages[0], receipts=said.receipts))),
        PLACEHOLDER,
        terminated=False,
    )
