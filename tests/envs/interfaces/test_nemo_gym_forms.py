"""Rows, Responses objects and metrics in NeMo Gym's form: pure functions, and what is read back is what was written."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.envs.abstention_support import Script, environment, rubric
from tests.envs.instruction_following.environment_support import instruction, question
from tests.envs.instruction_following.environment_support import row as following_row
from tests.envs.interfaces.nemo_gym_support import responded
from tests.support.runs import source_row

from gavel.envs.abstention.rules import STRICT
from gavel.envs.abstention.source import NemoAbstentionV1
from gavel.envs.episode import Policy
from gavel.envs.instruction_following.source import Verifif
from gavel.envs.interfaces.nemo_gym.aggregate import aggregate_rows
from gavel.envs.interfaces.nemo_gym.baseline import group_by_repeat
from gavel.envs.interfaces.nemo_gym.gateway import Gateway
from gavel.envs.interfaces.nemo_gym.responses import ResponseError, make_response_object, read_messages
from gavel.envs.interfaces.nemo_gym.rows import GymRows, make_gym_row
from gavel.envs.interfaces.nemo_gym.started import CONFIG, INSTANCE, serve_words
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.registry import make_reward
from gavel.envs.sources import SourceAdapter
from gavel.envs.types import Digests, Task, TaskError
from gavel.envs.vera_mh.target import VeraMhTarget
from gavel.judges.bindings import Binding
from gavel.models.errors import ConfigError, InputError
from gavel.models.types import Message, Reply, Sampling, Usage

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
VERA = Task(
    "Ines/sim", "vera_mh", "vera_mh/vera_mh", (Message("system", "Be helpful."),), VeraMhTarget("Ines", "sim"), {"risk": "None"}  # noqa: E501
)  # fmt: skip


def adapted(source: SourceAdapter, row: dict[str, Any]) -> Task:
    return source.adapt(row, source.binding)


def tasks() -> list[Task]:
    items = [
        instruction("keywords:existence", 1, keywords=["sea"], weight=2.5),
        instruction("punctuation:no_comma", "b", "user", True),
    ]
    asked = [question("Is it kind?", 7, pass_criteria="NO")]
    return [
        adapted(NemoAbstentionV1(), source_row(3)),
        adapted(Verifif(), following_row(54585, items, asked, language="fre", prompt="Say it.")),
        adapted(Verifif(), following_row("name", items[:1])),
        VERA,
        Task("t", "of_somebody", "x/y", (Message("user", "Hi"),), {"answer": [1, {"a": None}]}, {"domain": "z"}),
    ]


@pytest.mark.parametrize("task", tasks(), ids=lambda task: f"{task.env}-{task.task_id}")
def test_a_task_written_as_a_row_is_read_back_as_the_same_task(task: Task) -> None:
    row = orjson.loads(orjson.dumps(make_gym_row(task)))
    found = GymRows(task.env).adapt(row, "another binding")
    assert found == task
    assert found.digest == task.digest


@pytest.mark.parametrize(("name", "source"), [("abstention/example.jsonl", NemoAbstentionV1())])
def test_real_rows_keep_what_gyms_own_server_reads(name: str, source: SourceAdapter) -> None:
    if not (SHARED / name).is_file():
        pytest.skip(f"no ../shared/data/{name}")
    for line in (SHARED / name).read_bytes().splitlines():
        row = orjson.loads(line)
        made = orjson.loads(orjson.dumps(make_gym_row(adapted(source, row), "abstention_simple_agent")))
        assert {key: made[key] for key in ("id", "question", "answer", "agent_ref")} == {
            key: row[key] for key in ("id", "question", "answer", "agent_ref")
        }
        assert made["responses_create_params"]["input"] == row["responses_create_params"]["input"]
        assert GymRows("abstention").adapt(made, "").digest == adapted(source, row).digest


def test_a_row_of_another_environment_or_without_our_field_says_so() -> None:
    row = make_gym_row(tasks()[0])
    with pytest.raises(TaskError, match="choose env=abstention"):
        GymRows("vera_mh").adapt(row, "")
    del row["gavel"]["verifier"]
    with pytest.raises(TaskError, match=r"gavel\.verifier"):
        GymRows("abstention").adapt(row, "")
    with pytest.raises(ConfigError, match="any environment"):
        GymRows(None)


@pytest.mark.parametrize(
    ("response", "text", "ending"),
    [
        (responded("yes"), "yes", "stop"),
        (responded("ye", status="incomplete", reason="max_output_tokens"), "ye", "length"),
        (
            responded("ye", status="completed", reason="max_output_tokens"),
            "ye",
            "length",
        ),  # as Gym's vLLM server has it
        (responded("", status="failed"), "", "failed"),
        ({"output": [{"type": "message", "role": "assistant", "content": "plain"}]}, "plain", "stop"),
        ({"output": []}, "", "stop"),
        (
            responded("", output=[{"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}]),
            "",
            "tool_calls",
        ),
    ],
)
def test_a_response_is_read_with_how_it_ended(response: dict[str, Any], text: str, ending: str) -> None:
    (message,) = read_messages(response)
    assert message.reply is not None
    assert (message.content, message.reply.text, message.reply.finish_reason) == (text, text, ending)


def test_usage_and_reasoning_come_through_and_the_last_message_after_tools_is_the_answer() -> None:
    said = responded("done")["output"][0]
    output = [
        {"type": "reasoning", "id": "r0", "summary": [{"type": "summary_text", "text": "look it up"}]},
        {**said, "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "42"},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "so it is"}]},
        {**said, "content": [{"type": "output_text", "text": "First."}]},
        said,
    ]
    (message,) = read_messages(responded("", output=output))
    assert message.reply == Reply("done", "stop", "policy", Usage(7, 3, 2, 1), "so it is")


REPLIES = st.builds(
    Reply, st.text(), st.sampled_from(["stop", "length"]), st.just("m"), st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),  # noqa: E501
    st.none() | st.text(min_size=1), st.just(False),
)  # fmt: skip


@given(st.lists(st.tuples(st.text(min_size=1), REPLIES), min_size=1, max_size=4), st.booleans())
def test_a_conversation_written_as_a_response_is_read_back_word_for_word(
    turns: list[tuple[str, Reply]], ends: bool
) -> None:
    said = [
        message
        for words, reply in turns
        for message in (Message("user", words), Message("assistant", reply.text, reply))
    ]
    said = [*said, Message("user", "that is all")] if ends else said
    found = read_messages(orjson.loads(orjson.dumps(make_response_object(said, response_id="r", created=0.0))))
    assert [(message.role, message.content) for message in found] == [
        (message.role, message.content) for message in said
    ]
    endings = [message.reply.finish_reason for message in found if message.reply]
    assert endings == [reply.finish_reason for _, reply in turns]


WORDS = st.sampled_from(
    ["output", "type", "role", "content", "text", "status", "usage", "model", "incomplete_details", "reason"]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner)
)


@given(ODD)
def test_no_response_object_however_odd_gives_anything_but_a_named_error(value: Any) -> None:
    for odd in (
        value,
        {"output": value},
        {"output": [value]},
        responded("x", output=[{"type": "message", "content": value}]),
    ):
        try:
            assert all(message.role in ("user", "assistant") for message in read_messages(odd))
        except ResponseError as refused:
            named = refused.field.startswith("response")
        else:
            named = True
        assert named


def gateway() -> Gateway:
    judge = Script(lambda _: "CORRECT")
    bindings = {"abstention": Binding("abstention", "general", rubric(STRICT))}
    digests, reward = Digests("sha256:0", {}), make_reward({"name": "tiered"})
    served = ServedEnvironment(
        "abstention", environment(STRICT, judge), reward, bindings, digests, (GymRows("abstention"), NemoAbstentionV1())
    )
    return Gateway({"abstention": served}, Policy(Script(lambda _: "42"), Sampling()))


ROW_FIELDS = (
    "responses_create_params", "input", "response", "question", "answer", "id", "gavel", "agent_ref", "name", "instance_config",  # noqa: E501
    "mask_sample", "reward", "gavel_result", "usage", "schema", "env", "verifier", "metadata", "temperature", "tools",
)  # fmt: skip
GYM_FIELDS = (
    "_ng_task_index", "_ng_rollout_index", "_ng_attempt_index", "episode_id", "task", "task_input", "task_id", "task_data",  # noqa: E501
    "verification_input",
)  # fmt: skip
FIELDS = st.sampled_from([*ROW_FIELDS, *GYM_FIELDS])
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6),
)


@given(BODIES, st.booleans())
def test_no_body_however_odd_makes_the_gateway_raise_anything_but_a_named_error(value: Any, good: bool) -> None:
    base = {**source_row(1), "response": responded("x")} if good else {}
    body = {**base, **value} if isinstance(value, dict) else value

    async def ask() -> None:
        made = gateway()
        for operation in (made.verify_row, made.run_row):
            with contextlib.suppress(InputError):
                assert isinstance(orjson.dumps(await operation(body)), bytes)
        with contextlib.suppress(InputError):
            orjson.dumps(made.aggregate_rows([body] if isinstance(body, dict) else []))

    asyncio.run(ask())


def replied(task: int, rollout: int, reward: float, **more: Any) -> dict[str, Any]:
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "reward": reward,
        "id": task,
        "agent_ref": {"name": "a"},
        "response": {"usage": {"input_tokens": 10 * task}},
        **more,
    }


def test_masked_rows_are_in_no_statistic_and_are_counted_beside_them() -> None:
    rows = [
        replied(0, 0, 1.0),
        replied(1, 0, 0.5),
        replied(1, 1, 0.0, mask_sample=True),
        replied(2, 0, 0.0, mask_sample=True),
    ]
    found = aggregate_rows(rows, None)
    agent = found["agent_metrics"]
    assert (agent["mean/reward"], agent["max/reward"], agent["min/reward"], agent["median/reward"]) == (
        0.75,
        1.0,
        0.5,
        0.75,
    )
    assert agent["std/reward"] == pytest.approx(0.3535533905932738)
    coverage = {"measured_rollouts": 2, "masked_rollouts": 2, "measured_tasks": 2, "fully_masked_tasks": 1}
    assert {name: agent[f"coverage/{name}"] for name in coverage} == coverage
    assert {name: found["key_metrics"][f"coverage/{name}"] for name in coverage} == coverage
    assert [group["_ng_task_index"] for group in found["group_level_metrics"]] == [0, 1]
    assert [info["reward"] for group in found["group_level_metrics"] for info in group["rollout_infos"]] == [1.0, 0.5]
    assert not any(name.endswith("/id") for name in agent)
    assert aggregate_rows(rows[2:], None)["key_metrics"] == {
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 2,
    }


def test_repeats_are_described_one_by_one_and_across() -> None:
    rows = [replied(task, rollout, float(task == rollout)) for task in range(2) for rollout in range(2)] + [
        replied(2, 0, 1.0)
    ]
    first, second = group_by_repeat(rows)
    assert (first["sample_count"], first["missing_count"], second["sample_count"], second["missing_count"]) == (
        3,
        0,
        2,
        1,
    )
    assert (first["mean/reward"], second["mean/reward"]) == (pytest.approx(2 / 3), 0.5)
    assert (first["p25/reward"], first["p75/reward"]) == (0.5, 1.0)
    half = 4.302652729911275 * (1 / 3) ** 0.5 / 3**0.5  # t(2) at 0.975 times the standard error
    assert first["ci_high_95/reward"] - first["mean/reward"] == pytest.approx(half, rel=1e-3)
    agent = aggregate_rows(rows, None)["agent_metrics"]
    assert agent["mean_across_repeats/mean/reward"] == pytest.approx((2 / 3 + 0.5) / 2)
    assert agent["num_repeats"] == 2


GYM_CONFIG = """
mine: {resources_servers: {gavel_abstention: {entrypoint: app.py, host: 127.0.0.1, port: 1234, gavel: ["judge.model=m"],
  judge_model_server: {type: responses_api_models, name: judging}}}}
judging: {responses_api_models: {openai_model: {host: 127.0.0.1, port: 77, openai_model: big}}}
"""


def test_what_gym_says_when_it_starts_a_server_becomes_the_words_of_serve() -> None:
    words = serve_words({CONFIG: GYM_CONFIG, INSTANCE: "mine"})
    assert words[:3] == ["env=abstention", "http.host=127.0.0.1", "http.port=1234"]
    assert words[-4:] == ["judge=external", "judge.base_url=http://127.0.0.1:77/v1", "judge.model=big", "judge.model=m"]
    assert "http.without_key=true" not in words
    opened = serve_words(
        {CONFIG: GYM_CONFIG.replace("host: 127.0.0.1, port: 1234", "host: 10.0.0.7, port: 1234"), INSTANCE: "mine"}
    )
    assert "http.without_key=true" in opened
    for variables in (
        {},
        {CONFIG: GYM_CONFIG},
        {CONFIG: GYM_CONFIG, INSTANCE: "other"},
        {CONFIG: "[]", INSTANCE: "mine"},
    ):
        with pytest.raises(ConfigError):
            serve_words(variables)
