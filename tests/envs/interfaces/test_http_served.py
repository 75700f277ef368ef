"""What a served environment makes of failures: a typed, ungraded end, whoever failed; only cancellation passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.envs import abstention_support as abstention

from gavel.envs.abstention.rules import STRICT
from gavel.envs.interfaces.served import ServedEnvironment, TranscriptError
from gavel.envs.registry import list_sources, make_reward
from gavel.envs.types import (
    Digests,
    EnvironmentInfo,
    Finish,
    Observe,
    Opening,
    Outcome,
    RewardError,
    Summary,
    Task,
    TaskError,
    Transcript,
)
from gavel.judges.bindings import Binding
from gavel.judges.types import JudgeFailure
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.types import Message, Reply

ROW = {
    "id": "q-1", "question": abstention.QUESTION, "answer": abstention.REFERENCE,
    "responses_create_params": {"input": [{"role": "user", "content": abstention.QUESTION}]},
}  # fmt: skip
Step = Callable[[Task, Transcript], Awaitable[Observe | Finish]]


@dataclass
class Broken:
    """An environment whose step does what a test says."""

    does: Step
    name: str = "abstention"
    info: EnvironmentInfo = field(default_factory=lambda: EnvironmentInfo(binding="abstention"))

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        return raw

    async def open(self, task: Task) -> Opening:
        await self.does(task, Transcript(task.messages))
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Transcript) -> Observe | Finish:
        return await self.does(task, transcript)

    def summarize(self, results: Sequence[Any]) -> Summary:
        return Summary({}, {})


def served(says: str | ModelFailure = "CORRECT", does: Step | None = None, **changes: Any) -> ServedEnvironment:
    model = abstention.Script(lambda _: says)
    environment: Any = Broken(does) if does else abstention.environment(STRICT, model)
    bindings = {"abstention": Binding("abstention", "general", abstention.rubric(STRICT))}
    made = ServedEnvironment(
        "abstention",
        environment,
        make_reward({"name": "tiered"}),
        bindings,
        Digests("sha256:0", {}),
        list_sources("abstention"),
    )
    return replace(made, **changes)


def raising(failed: BaseException) -> Step:
    async def step(task: Task, transcript: Transcript) -> Observe | Finish:
        raise failed

    return step


@pytest.mark.parametrize(
    ("failed", "kind", "stage"),
    [
        (ModelFailure(FailureKind.PROVIDER_UNAVAILABLE, "gone"), "provider_unavailable", "judge"),
        (ModelFailure(FailureKind.SIMULATION_FAILED, "gone"), "gavel:simulation_failed", "simulator"),
        (JudgeFailure(FailureKind.JUDGE_UNPARSEABLE, "gone"), "judge_unparseable", "judge"),
        (TaskError("bad"), "gavel:task_schema", "task"),
        (ConfigError("bad"), "verifier_error", "verifier"),
        (ZeroDivisionError("bug"), "verifier_error", "verifier"),
        (TimeoutError("of its own"), "verifier_error", "verifier"),
        (AssertionError(), "verifier_error", "verifier"),
    ],
)
async def test_whatever_a_step_raises_ends_ungraded_with_its_kind_and_stage(
    failed: Exception, kind: str, stage: str
) -> None:
    environment = served(does=raising(failed))
    result = await environment.grade_episode(ROW, "\\boxed{x}")
    bad_row = stage == "task"
    assert (result.status, result.reward) == ("invalid_task" if bad_row else "judge_error", None)
    assert result.fallback_reward == (None if bad_row else 0.0)
    assert result.outcome.failure is not None
    assert (result.outcome.failure.kind.value, result.outcome.failure.stage) == (kind, stage)
    task = environment.read_task(ROW)
    for end in (
        await environment.step_episode(task, environment.make_transcript(task, "x")),
        await environment.open_episode(task),
    ):
        assert isinstance(end, Finish)
        assert end.outcome.failure == result.outcome.failure


async def test_cancellation_passes() -> None:
    async def forever(task: Task, transcript: Transcript) -> Observe | Finish:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(served(does=forever).grade_episode(ROW, "x"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_reward_policy_that_raises_leaves_the_row_ungraded_and_its_checks_in_place() -> None:
    class Refuses:
        bounds, ablation = None, None

        def __init__(self, failed: Exception) -> None:
            self.failed = failed

        def reward(self, outcome: Outcome) -> Any:
            raise self.failed

    for failed in (RewardError("no"), ZeroDivisionError("bug")):
        result = await served(reward=Refuses(failed)).grade_episode(ROW, "\\boxed{a}")
        assert (result.status, result.reward, result.outcome.label) == ("judge_error", None, "")
        assert result.outcome.failure is not None
        assert result.outcome.failure.kind is FailureKind.VERIFIER_ERROR
        assert [check.name for check in result.outcome.checks] == ["final_answer", "verdict"]


async def test_a_bad_task_is_an_invalid_result_that_says_it_is_to_be_left_out() -> None:
    for row in ({}, {**ROW, "question": 3}, {"schema": "gavel.task/1", "task_id": "x"}):
        result = await served().grade_episode(row, "x")
        assert (result.status, result.reward, result.fallback_reward) == ("invalid_task", None, None)
        assert result.outcome.details == {"should_skip_rollout": True}
        assert result.task_id == str(row.get("task_id", row.get("id", "")))


async def test_what_was_said_may_be_a_text_a_reply_or_messages_and_comes_to_the_same() -> None:
    environment = served()
    task = environment.read_task(ROW)
    said = Message("assistant", "\\boxed{Lyon}")
    forms = [
        "\\boxed{Lyon}",
        Reply("\\boxed{Lyon}", "stop", "policy"),
        (*task.messages, said),
        Transcript((*task.messages, said)),
    ]
    results = [await environment.grade_episode(task, form) for form in forms]
    assert {result.status for result in results} == {"graded"}
    assert {result.transcript for result in results} == {results[0].transcript}
    assert {result.outcome.label for result in results} == {"correct"}
    with pytest.raises(TranscriptError, match=r"messages\.0"):
        environment.make_transcript(task, (said,))
    nothing = await environment.grade_episode(task, task.messages)
    assert nothing.outcome.failure is not None
    assert nothing.outcome.failure.kind is FailureKind.EPISODE_CUT
