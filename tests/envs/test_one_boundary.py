"""A failure has one answer, whichever door an episode came through: rollout, HTTP, NeMo Gym's form, the NeMo-RL actor,
TRL.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.nemo_gym_support import responded

from gavel.envs.abstention.target import AbstentionTarget, parse_target
from gavel.envs.episode import EpisodeState, Policy
from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.interfaces.http.records import Graded, Invalid, Ungraded
from gavel.envs.interfaces.http.work import Work
from gavel.envs.interfaces.nemo_gym.aggregate import RESULT
from gavel.envs.interfaces.nemo_gym.gateway import Gateway
from gavel.envs.interfaces.nemo_gym.rows import GymRows, make_gym_row
from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.interfaces.nemo_rl.stamps import UID, make_info, with_ending
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.interfaces.trl.scoring import Scorer, TrlCompletion
from gavel.envs.types import (
    Digests,
    EnvironmentInfo,
    Finish,
    Opening,
    Outcome,
    Result,
    Reward,
    RewardError,
    Summary,
    Task,
    TaskError,
)
from gavel.envs.types import Transcript as Said
from gavel.judges.bindings import Binding
from gavel.judges.types import JudgeFailure
from gavel.launch.rollout.collector import Collector, OwedRow
from gavel.launch.runs.inputs import PlannedRow
from gavel.launch.runs.journal import read_journal
from gavel.models.codec import dump
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure, FailureKind
from gavel.models.files import JsonLines
from gavel.models.types import ChatModel, ChatRequest, Message, Receipt, Reply, Sampling
from gavel.models.types import Completion as Drawn

TASK = Task("q-1", "abstention", "qa/abstention", (Message("user", "Say."),), AbstentionTarget("Say.", "said"), {})
SENT = orjson.loads(dump(TASK))
REPLY = "said"
DIGESTS = Digests("sha256:0", {})


class Environment:
    """One reply, graded ``right``, unless ``failed`` is raised."""

    name = "abstention"
    info = EnvironmentInfo(policy_turns=1, binding="abstention")

    def __init__(self, failed: BaseException | None) -> None:
        self.failed = failed

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        return parse_target(raw)

    async def open(self, task: Task) -> Opening:
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Said) -> Finish:
        if self.failed is not None:
            raise self.failed
        return Finish(Outcome("right"))

    def summarize(self, results: Sequence[Result]) -> Summary:
        return Summary({}, {})


class Paying:
    """Pays 1, unless ``failed`` is raised."""

    bounds, ablation = None, None

    def __init__(self, failed: Exception | None) -> None:
        self.failed = failed

    def reward(self, outcome: Outcome) -> Reward:
        if self.failed is not None:
            raise self.failed
        return Reward(1.0, {})


class Model:
    """Always says the same."""

    name = identity = "policy"

    async def complete(self, request: ChatRequest) -> Drawn:
        return Drawn(Reply(REPLY, "stop", "policy"), Receipt("c-1", "policy", "policy", "policy", "sha256:0"))


class Rubric:
    """What a task's verifier is checked against."""

    targets, digest, profile = ("qa",), "sha256:0", "p"


class Folder:
    """Takes the results of a collector."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.results = JsonLines(folder / "transcripts.jsonl"), list[Result]()

    def add_result(self, result: Result) -> None:
        self.results.append(result)

    def renew_lease(self) -> None:
        return None


def served(environment: Any, reward: Any) -> ServedEnvironment:
    bindings = {"abstention": Binding("abstention", "general", Rubric())}  # type: ignore[arg-type]
    return ServedEnvironment("abstention", environment, reward, bindings, DIGESTS, (GymRows("abstention"),))


async def through_rollout(environment: Any, reward: Any, folder: Path) -> Result:
    store: Any = Folder(folder)
    policy = Policy(_model(), Sampling())
    watch = FailureWatch(FailurePolicy())
    collector = Collector(served(environment, reward).player, policy, store, watch, lambda result: None)
    owed = OwedRow(PlannedRow(0, 0, TASK, TASK.digest), EpisodeState(), 1)
    assert await collector.collect_rows([owed], 1, 1) is None
    (result,) = store.results
    assert read_journal(
        folder / "transcripts.jsonl", {TASK.task_id: TASK.messages}
    )  # the reply was kept, whatever came of it
    return result  # type: ignore[no-any-return]


async def through_http(environment: Any, reward: Any, folder: Path) -> Result:
    one = served(environment, reward)
    answer = await Work(one).grade_episode({"task": SENT, "reply": REPLY})
    result = await one.grade_episode(TASK, REPLY)
    expected = {"graded": Graded, "judge_error": Ungraded, "invalid_task": Invalid}[result.status]
    assert isinstance(answer, expected)
    if not isinstance(answer, Graded):
        assert answer.failure == result.outcome.failure
    return result


async def through_gym(environment: Any, reward: Any, folder: Path) -> Result:
    seen: list[Result] = []
    gateway = Gateway({"abstention": served(environment, reward)}, seen=lambda name, result: seen.append(result))
    reply = await gateway.verify_row({**make_gym_row(TASK), "response": responded(REPLY)})
    (result,) = seen
    assert reply[RESULT] == replace(result, transcript=Said())
    assert bool(reply.get("mask_sample")) == (result.reward is None)
    return result


def grader(environment: Any, reward: Any) -> SampleGrader:
    return SampleGrader(environment, reward, Ledger(None, "abstention"), DIGESTS, deadline=5.0, policy_model="policy")


async def through_nemo_rl(environment: Any, reward: Any, folder: Path) -> Result:
    made = grader(environment, reward)
    ending = {
        "finish_reason": "stop",
        "think_prefilled": False,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "last_id": None,
    }
    info = with_ending({**make_info(dump(TASK).decode(), "train", None, None), UID: "u-1"}, ending)
    stepped = await made.step_sample(REPLY, info)
    (verdict,), (result,) = made.take_verdicts(["u-1"])
    assert verdict is not None
    assert stepped.reward == (verdict.reward if verdict.reward is not None else 0.0)
    return result


async def through_trl(environment: Any, reward: Any, folder: Path) -> Result:
    made = grader(environment, reward)
    results: list[Result] = []
    verdicts = made.take_verdicts

    def keep(uids: list[str]) -> Any:
        found = verdicts(uids)
        results.extend(found[1])
        return found

    made.take_verdicts = keep  # type: ignore[method-assign]
    scorer = Scorer(made, StepLedger(folder), FailureWatch(FailurePolicy()), Limits(frozenset({2}), 4, 100))
    (score,) = await scorer.score_step(1, [TrlCompletion(dump(TASK).decode(), REPLY, (7, 2), 9)])
    (result,) = results
    assert score == (None if result.reward is None else result.reward.value)
    return result


def _model() -> ChatModel:
    return Model()  # type: ignore[return-value]


Door = Callable[[Any, Any, Path], Awaitable[Result]]
DOORS: dict[str, Door] = {
    "rollout": through_rollout,
    "http": through_http,
    "gym": through_gym,
    "nemo_rl": through_nemo_rl,
    "trl": through_trl,
}
BUG = KeyError("no such key")
JUDGE = JudgeFailure(
    FailureKind.JUDGE_UNPARSEABLE, "two verdicts", (Receipt("c-9", "judge", "general", "j", "sha256:1"),)
)
FAILED_ON = "the reward policy Paying failed on the label 'right': KeyError: 'no such key'"
REFUSED = "the reward policy Paying refused: no check to pay"
VERIFIER, BAD = FailureKind.VERIFIER_ERROR, FailureKind.TASK_SCHEMA
CASES: dict[str, tuple[BaseException | None, Exception | None, str, Failure | None]] = {
    "nothing": (None, None, "graded", None),
    "a bug in a reward policy": (None, BUG, "judge_error", Failure(VERIFIER, "reward", FAILED_ON)),
    "a reward policy refuses": (None, RewardError("no check to pay"), "judge_error", Failure(VERIFIER, "reward", REFUSED)),  # noqa: E501
    "a bad row": (TaskError("no unit", field="target.unit"), None, "invalid_task", Failure(BAD, "task", "target.unit: no unit")),  # noqa: E501
    "a bug in step": (BUG, None, "judge_error", Failure(VERIFIER, "verifier", "KeyError: 'no such key'")),
    "an error of ours in step": (ConfigError("no such thing"), None, "judge_error", Failure(VERIFIER, "verifier", "no such thing")),  # noqa: E501
    "an exit in step": (SystemExit(3), None, "judge_error", Failure(VERIFIER, "verifier", "SystemExit: 3")),
    "a cancellation let slip": (
        asyncio.CancelledError("mine"), None, "judge_error", Failure(VERIFIER, "verifier", "CancelledError: mine"),
    ),
    "a judge that failed": (JUDGE, None, "judge_error", Failure(FailureKind.JUDGE_UNPARSEABLE, "judge", "two verdicts")),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("door", list(DOORS))
async def test_a_failure_gives_the_same_result_through_every_door(door: str, case: str, tmp_path: Path) -> None:
    in_step, in_reward, status, failure = CASES[case]
    result = await DOORS[door](Environment(in_step), Paying(in_reward), tmp_path)
    assert (result.status, result.outcome.failure) == (status, failure)
    assert (result.reward is None) == (status != "graded")
    assert result.fallback_reward == (0.0 if status == "judge_error" else None)
    assert (result.task_id, result.task_digest, result.transcript.messages[-1].content) == ("q-1", TASK.digest, REPLY)
    assert ("c-9" in [receipt.call_id for receipt in result.receipts]) == (in_step is JUDGE)


@pytest.mark.parametrize("door", list(DOORS))
async def test_the_cancellation_of_a_row_passes_through_every_door(door: str, tmp_path: Path) -> None:
    entered = asyncio.Event()

    class Waiting(Environment):
        async def step(self, task: Task, transcript: Said) -> Finish:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

    work = asyncio.ensure_future(DOORS[door](Waiting(None), Paying(None), tmp_path))
    await asyncio.wait_for(entered.wait(), 10)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


class Ended(Exception):
    """What the handler of somebody's trainer raises."""


@pytest.mark.parametrize("raised", [SystemExit(143), Ended("SIGTERM")], ids=["exit", "own"])
@pytest.mark.parametrize("door", sorted({*DOORS} - {"rollout"}))
def test_what_the_handler_of_a_signal_raises_ends_the_process_that_uses_us(
    door: str, raised: BaseException, tmp_path: Path
) -> None:
    """It is raised in the middle of whatever code runs, and is no bug of an environment; a rollout is a process of our
    own.
    """

    class Told(Environment):
        async def step(self, task: Task, transcript: Said) -> Finish:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError

    def end(number: int, frame: object) -> None:
        raise raised

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(type(raised)):
            asyncio.run(DOORS[door](Told(None), Paying(None), tmp_path))
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_handler_of_a_verifiers_own_alarm_makes_its_row_ungraded(tmp_path: Path) -> None:
    class Slow(Environment):
        async def step(self, task: Task, transcript: Said) -> Finish:
            signal.raise_signal(signal.SIGALRM)
            raise AssertionError

    def late(number: int, frame: object) -> None:
        raise SystemExit("too slow")

    before = signal.signal(signal.SIGALRM, late)
    try:
        result = await through_trl(Slow(None), Paying(None), tmp_path)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert result.outcome.failure == Failure(VERIFIER, "verifier", "SystemExit: too slow")
