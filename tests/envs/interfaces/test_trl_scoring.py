"""The reward function for TRL, without TRL: what is graded gives a reward, what is not gives None, and the ledger has
all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import orjson
import pytest
from tests.envs.instruction_following.environment_support import environment, instruction
from tests.envs.instruction_following.environment_support import task as instructed

from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.instruction_following.rewards import AggregateConfig, make_all
from gavel.envs.interfaces.nemo_rl.driver import TrainingStopped
from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.interfaces.nemo_rl.tasks import encode_task
from gavel.envs.interfaces.trl.config import Extras, read_options
from gavel.envs.interfaces.trl.scoring import Scorer, TrlCompletion
from gavel.envs.interfaces.trl.trainer import make_writer
from gavel.envs.types import (
    Check,
    Digests,
    EnvironmentInfo,
    Finish,
    Opening,
    Outcome,
    Result,
    Reward,
    Summary,
    Task,
    Transcript,
)
from gavel.judges.types import JudgeFailure
from gavel.launch.comparing.ledgers import read_samples
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.types import Message

LIMITS = Limits(frozenset({2}), 4, 100)


class Echo:
    """Calls a reply by its text; ``lost`` finds no judge; a reply that was cut is ``cut``."""

    name = "echo"
    info = EnvironmentInfo(policy_turns=1)

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        return raw

    async def open(self, task: Task) -> Opening:
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Transcript) -> Finish:
        reply = transcript.messages[-1].reply
        assert reply is not None
        if reply.text == "lost":
            raise JudgeFailure(FailureKind.TRANSPORT_UNREACHABLE, "nobody is there")
        label = "cut" if reply.finish_reason == "length" else reply.text
        return Finish(Outcome(label, checks=(Check("good", label == "good", float(label == "good"), ""),)))

    def summarize(self, results: Sequence[Result]) -> Summary:
        return Summary({}, {})


class Good:
    """1 for ``good``, else 0."""

    def reward(self, outcome: Outcome) -> Reward:
        value = float(outcome.label == "good")
        return Reward(value, {"good": value})


def scorer(folder: Path, policy: FailurePolicy | None = None) -> Scorer:
    grader = SampleGrader(Echo(), Good(), Ledger(folder, "echo"), Digests("", {}), deadline=9.0, policy_model="tiny")
    return Scorer(grader, StepLedger(folder), FailureWatch(policy or FailurePolicy()), LIMITS)


def completion(text: str, task: str = "a", ids: tuple[int, ...] = (7, 2)) -> TrlCompletion:
    return TrlCompletion(encode_task(Task(task, "echo", "echo/echo", (Message("user", "Say."),), {}, {})), text, ids, 9)


async def test_an_ungraded_completion_gives_none_and_its_siblings_their_rewards(tmp_path: Path) -> None:
    made = scorer(tmp_path / "ledger")
    assert await made.score_step(
        1, [completion("good"), completion("lost"), completion("bad"), completion("good")]
    ) == [1.0, None, 0.0, 1.0]
    assert made.metrics["judge/graded"] == 3
    assert made.metrics["reward/graded_mean"] == pytest.approx(2 / 3)
    assert made.metrics["judge/ungraded/transport_unreachable"] == 1


async def test_every_completion_is_a_row_of_the_ledger_and_a_weight_of_its_step(tmp_path: Path) -> None:
    made = scorer(tmp_path / "ledger")
    await made.score_step(1, [completion("good"), completion("lost")])
    await made.score_step(2, [completion("bad", "b"), completion("good", "b")])
    rows = [orjson.loads(line) for line in (tmp_path / "ledger" / "echo.rows.jsonl").read_bytes().splitlines()]
    assert [row["verdict"]["reward"] for row in rows] == [1.0, None, 0.0, 1.0]
    assert rows[1]["result"]["outcome"]["failure"]["kind"] == "transport_unreachable"
    assert rows[1]["result"]["fallback_reward"] == 0.0  # beside the row, in no figure
    steps = [orjson.loads(line) for line in (tmp_path / "ledger" / "steps.jsonl").read_bytes().splitlines()]
    assert [(row["step"], row["weight"]) for row in steps] == [(1, 1.0), (1, 0.0), (2, 1.0), (2, 1.0)]
    samples = read_samples(tmp_path)
    assert [(one.step, one.task[0], one.rollout, one.reward, one.label, one.checks) for one in samples] == [
        (1, "a", 0, 1.0, "good", 1.0),
        (1, "a", 1, None, "", None),
        (2, "b", 0, 0.0, "bad", 0.0),
        (2, "b", 1, 1.0, "good", 1.0),
    ]


async def test_a_reply_without_an_end_token_at_its_limit_was_cut(tmp_path: Path) -> None:
    made = scorer(tmp_path / "ledger")
    assert await made.score_step(1, [completion("good", ids=(7, 7, 7, 7)), completion("good", ids=(7, 7, 7, 2))]) == [
        0.0,
        1.0,
    ]
    assert [one.label for one in read_samples(tmp_path)] == ["cut", "good"]


async def test_a_reply_says_that_its_prompt_opened_the_thinking_block(tmp_path: Path) -> None:
    made = scorer(tmp_path / "ledger")
    await made.score_step(1, [replace(completion("good"), think_prefilled=True), completion("good")])
    rows = [orjson.loads(line) for line in (tmp_path / "ledger" / "echo.rows.jsonl").read_bytes().splitlines()]
    replies = [row["result"]["transcript"]["messages"][-1]["reply"] for row in rows]
    assert [reply.get("think_prefilled", False) for reply in replies] == [True, False]


ANSWER = "We eat here"
"""Three words; with its thinking, more."""


@pytest.mark.parametrize(
    ("text", "opened", "reward"),
    [
        (ANSWER, False, 1.0),
        (f"<think>Three words, they say.</think>\n{ANSWER}", False, 1.0),
        (f"Three words, they say.</think>\n{ANSWER}", True, 1.0),
        (f"Three words, they say.</think>\n{ANSWER}", False, 1.0),
        (f"[THINK]Three words.[/THINK]{ANSWER}", False, 1.0),
        (
            f"<|channel|>analysis<|message|>Three words.<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}",
            False,
            1.0,
        ),
        (ANSWER, True, 0.0),  # thinking that never ends
        (f"<think>{ANSWER}", False, 0.0),
        (f"<think>So.</think>{ANSWER} today", False, 0.0),
        (f"Say `<think>` {ANSWER}", False, 0.0),
    ],
)
async def test_the_answer_alone_is_checked_against_instructions(
    tmp_path: Path, text: str, opened: bool, reward: float
) -> None:
    words = instruction("length_constraints:number_words", relation="equal to", num_words=3)
    reward_policy, ledger = make_all(AggregateConfig()), Ledger(tmp_path / "l", "f")
    grader = SampleGrader(environment(), reward_policy, ledger, Digests("", {}), deadline=9.0, policy_model="p")
    made = Scorer(grader, StepLedger(tmp_path / "l"), FailureWatch(FailurePolicy()), LIMITS)
    assert await made.score_step(1, [TrlCompletion(encode_task(instructed([words])), text, (7, 2), 9, opened)]) == [
        reward
    ]


def test_tags_of_thinking_that_are_special_tokens_are_read_from_the_tokens() -> None:
    words = {1: "[THINK]", 2: "[/THINK]", 3: "hm", 4: "Paris", 5: "<|im_end|>"}

    class Tokenizer:
        added_tokens_decoder: ClassVar = {
            place: SimpleNamespace(content=words[place], special=True) for place in (1, 2, 5)
        }

        def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
            assert not skip_special_tokens
            return "".join(words[place] for place in ids)

    written = make_writer(Tokenizer(), {5})
    assert written("hmParis", (1, 3, 2, 4, 5)) == "[THINK]hm[/THINK]Paris"
    assert written("Paris", (4, 5)) == "Paris"


async def test_the_failure_policy_stops_the_training_and_the_rows_are_kept(tmp_path: Path) -> None:
    made = scorer(tmp_path / "ledger", FailurePolicy("strict"))
    with pytest.raises(TrainingStopped, match="nobody is there"):
        await made.score_step(1, [completion("good"), completion("lost")])
    assert [one.failure for one in read_samples(tmp_path)] == [None, "transport_unreachable"]


OPTIONS = {
    "model": "m", "prompts_per_step": 4, "generations_per_prompt": 4, "max_steps": 2, "max_total_tokens": 64, "max_new_tokens": 8,  # noqa: E501
    "learning_rate": 1e-5, "async_rollouts": False, "check_workers": 0, "overrides": None, "kind": "trl", "val_period": 10,  # noqa: E501
}  # fmt: skip


def test_options_are_read_with_the_extras_of_this_trainer() -> None:
    options = read_options({**OPTIONS, "overrides": {"threads": 1}}, 7)
    assert (options.seed, options.extras, options.max_new_tokens) == (7, Extras(threads=1), 8)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"generations_per_prompt": 1}, "trainer.generations_per_prompt"),
        ({"overrides": {"thread": 1}}, "trainer.overrides.thread"),
        ({"overrides": {"temperature": 0.0}}, "trainer.overrides.temperature"),
        ({"async_rollouts": True}, "trainer.async_rollouts"),
        ({"check_workers": 2}, "trainer.check_workers"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_key(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as failed:
        read_options({**OPTIONS, **change}, 1)
    assert failed.value.field == field
