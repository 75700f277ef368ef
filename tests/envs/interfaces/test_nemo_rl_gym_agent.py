"""The agent that NeMo Gym starts: a row never fails, never gets another row's grade, and its tokens are those drawn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.nemo_rl_support import LOST, RIGHT, actor_config, serving, task

from gavel.envs.interfaces.nemo_rl.framing import Frame
from gavel.envs.interfaces.nemo_rl.gym_agent import GymAgent
from gavel.envs.interfaces.nemo_rl.gym_groups import wrap_group
from gavel.envs.interfaces.nemo_rl.stamps import UID, make_gym_row, make_info, stamp_info
from gavel.models.codec import to_plain
from gavel.models.failures import FailureKind, ModelFailure

FRAME = Frame("<e>", 9, "\n<u>", "<e>\n<a>", special="<e>|<u>|<a>")
Answer = str | dict[str, Any] | ModelFailure


class Policy:
    """A model server of Gym's: each reply has a token of its own, after the tokens of all that stands before it."""

    def __init__(self, *answers: Answer, edit: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self.answers, self.edit, self.asked = list(answers), edit, []

    asked: list[Mapping[str, Any]]

    async def draw_reply(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        self.asked.append(body)
        cookies["session"] = "same"
        said = self.answers[(len(self.asked) - 1) % len(self.answers)]
        if isinstance(said, ModelFailure):
            raise said
        if isinstance(said, dict):
            return said
        before = [token for item in body["input"] for token in item.get("generation_token_ids", [])]
        item = {
            "type": "message",
            "role": "assistant",
            "id": f"m{len(self.asked)}",
            "status": "completed",
            "content": [{"type": "output_text", "text": said, "annotations": []}],
            "prompt_token_ids": [1, 2, *before],
            "generation_token_ids": [10 + len(self.asked)],
            "generation_log_probs": [-0.5],
        }
        if before:  # what lies between two turns
            item["prompt_token_ids"] = [1, 2, *before, 3]
        self.edit(item)
        return {"id": "r", "model": "policy", "object": "response", "status": "completed", "output": [item]}


def row(env: str = "abstention", uid: str = "u-1", *, too_long: str | None = None, number: int = 0) -> dict[str, Any]:
    made = task(env, number)
    info = make_info(orjson.dumps(made).decode(), "train", FRAME if env == "vera_mh" else None, too_long)
    return stamp_info(make_gym_row(info, made["messages"], f"gavel_{env}_agent", prefilled=False), uid, 0)


@asynccontextmanager
async def playing(
    policy: Policy, *, env: str = "abstention", ledger: Path | None = None, **options: Any
) -> AsyncIterator[Any]:
    """Serve a judge and play rows; yields the function that answers one."""
    with serving(**options) as server:
        agent = GymAgent(actor_config(env, server.base_url, ledger=str(ledger) if ledger else None), policy)

        async def answer(one: dict[str, Any]) -> dict[str, Any]:
            found = orjson.loads(await agent.answer_row(one))
            assert isinstance(found, dict)
            return found

        answer.server = server  # type: ignore[attr-defined]
        yield answer
        await agent.shutdown()


def verdict(found: dict[str, Any]) -> dict[str, Any] | None:
    read = orjson.loads(found["gavel_verdict"])
    assert read is None or isinstance(read, dict)
    return read


def check_masked(found: dict[str, Any], kind: FailureKind) -> None:
    """A masked row has a number, tokens that NeMo-RL can take, and says why."""
    assert (found["reward"], found["mask_sample"], found["instance_config"]) == (0.0, True, {"mask_sample": True})
    assert any(item.get("generation_token_ids") for item in found["response"]["output"])
    told = verdict(found)
    assert told is not None
    assert (told["reward"], told["failure"]["kind"]) == (None, kind)


async def test_a_right_reply_is_graded_with_the_tokens_that_were_drawn() -> None:
    async with playing(Policy(f"it is {RIGHT}")) as answer:
        found = await answer(row())
    assert (found["reward"], found["mask_sample"]) == (1.0, False)
    (item,) = found["response"]["output"]
    assert (item["prompt_token_ids"], item["generation_token_ids"]) == ([1, 2], [11])
    told = verdict(found)
    assert told is not None
    assert (told["uid"], told["reward"], told["failure"]) == ("u-1", 1.0, None)
    # NeMo-RL logs the mean of every number of an answer, over all samples: there is none but the reward.
    numbers = {name for name, value in found.items() if isinstance(value, int | float)}
    assert numbers == {"reward", "mask_sample"}


async def test_a_lost_judge_call_keeps_the_drawn_tokens_and_is_masked() -> None:
    async with playing(Policy(f"it is {RIGHT} {LOST}")) as answer:
        found = await answer(row())
    check_masked(found, FailureKind.PROVIDER_UNAVAILABLE)
    assert found["response"]["output"][0]["generation_token_ids"] == [11]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Policy(ModelFailure(FailureKind.TRANSPORT_UNREACHABLE, "gone")), FailureKind.TRANSPORT_UNREACHABLE),
        (Policy({"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
         FailureKind.CONTEXT_OVERFLOW),
        (Policy({"output": [], "status": "completed"}), FailureKind.EPISODE_CUT),
        (Policy({"output": None}), FailureKind.EPISODE_CUT),
    ],
)  # fmt: skip
async def test_a_reply_that_was_not_drawn_is_answered_masked(policy: Policy, kind: FailureKind) -> None:
    async with playing(policy) as answer:
        check_masked(await answer(row()), kind)


async def test_a_prompt_that_leaves_no_room_is_never_sent() -> None:
    policy = Policy("x")
    async with playing(policy) as answer:
        check_masked(await answer(row(too_long="4000 tokens")), FailureKind.CONTEXT_OVERFLOW)
    assert policy.asked == []


async def test_a_row_that_is_sent_again_gets_the_answer_that_it_had_also_while_it_is_played() -> None:
    import asyncio

    policy = Policy(f"it is {RIGHT}", "it is not")
    async with playing(policy) as answer:
        first, second = await asyncio.gather(answer(row()), answer({**row(), "_rowidx": 5}))
        third = await answer(row())
        other = await answer(row(uid="u-2"))
    assert first == second == third
    assert len(policy.asked) == 2
    assert (first["reward"], other["reward"]) == (1.0, 0.0)


async def test_after_a_death_a_row_that_is_drawn_anew_is_graded_anew(tmp_path: Path) -> None:
    for said, wanted, uid in ((f"it is {RIGHT}", 1.0, "u-1"), ("it is not", 0.0, "u-1r1"), (RIGHT, 1.0, "u-1r2")):
        async with playing(Policy(said), ledger=tmp_path) as answer:
            found = await answer(row())
        told = verdict(found)
        assert told is not None
        assert (found["reward"], told["uid"], found["mask_sample"]) == (wanted, uid, False)


async def test_a_fault_of_our_own_is_no_verdict_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(Policy("x")) as answer:
        broken = row()
        del broken["gavel_history"]
        found = await answer(broken)
    assert verdict(found) is None
    assert (found["reward"], found["mask_sample"]) == (0.0, True)
    assert any(item.get("generation_token_ids") for item in found["response"]["output"])


async def test_a_conversation_is_played_in_turns_whose_tokens_continue_each_other() -> None:
    policy = Policy("how are you?", "thank you")
    async with playing(policy, env="vera_mh") as answer:
        found = await answer(row("vera_mh"))
    first, persona, second = found["response"]["output"]
    assert persona["role"] == "user"
    assert persona["content"]
    assert "prompt_token_ids" not in persona
    assert second["prompt_token_ids"] == [1, 2, 11, 3]
    assert policy.asked[1]["input"][-2:] == [first, persona]
    assert not found["mask_sample"]
    assert found["reward"] == pytest.approx(verdict(found)["reward"])  # type: ignore[index]


async def test_tokens_that_do_not_continue_are_not_trained_on() -> None:
    def tear(item: dict[str, Any]) -> None:
        if len(item["prompt_token_ids"]) > 2:
            item["prompt_token_ids"][0] = 99

    async with playing(Policy("how are you?", edit=tear), env="vera_mh") as answer:
        found = await answer(row("vera_mh"))
    check_masked(found, FailureKind.EPISODE_CUT)
    assert [item["generation_token_ids"] for item in found["response"]["output"] if item["role"] == "assistant"] == [
        [11]
    ]


async def test_control_tokens_in_what_a_persona_says_are_broken_up() -> None:
    def reply(body: dict[str, Any]) -> Any:
        from tests.envs.interfaces.nemo_rl_support import answer as play

        return "I am <e> fine <u>" if body["model"] == "simulator-model" else play(body)

    policy = Policy("how are you?", "well")
    async with playing(policy, env="vera_mh", reply=reply) as answer:
        found = await answer(row("vera_mh"))
    said = found["response"]["output"][1]["content"]
    assert "<e>" not in said
    assert "<u>" not in said
    assert "fine" in said


async def test_a_row_of_another_training_is_refused() -> None:
    async with playing(Policy("x")) as answer:
        with pytest.raises(KeyError):
            await answer({key: value for key, value in row().items() if key != UID})


def test_what_was_not_drawn_stays_in_the_group_of_its_prompt() -> None:
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    def result(prompt: list[int], uid: str, value: float | None, undrawn: str) -> dict[str, Any]:
        failure = None if value is not None else {"kind": "x"}
        told = orjson.dumps({"uid": uid, "env": "e", "reward": value, "failure": failure}).decode()
        first = {"role": "user", "token_ids": torch.tensor(prompt)}
        full = {"reward": value or 0.0, "gavel_verdict": told, "gavel_undrawn": undrawn}
        return {"message_log": [first], "input_message_log": [dict(first)], "full_result": full}

    def make(nemo_gym_rows: Any, results: Any, input_batch: Any) -> Any:
        assert not any("gavel_undrawn" in one["full_result"] for one in results)
        rewards = torch.tensor([one["full_result"]["reward"] for one in results])
        final = {
            "total_reward": rewards,
            "loss_multiplier": torch.ones(len(results)),
            "prompts": [one["input_message_log"][0]["token_ids"].tolist() for one in results],
        }
        return SimpleNamespace(final_batch=final, rollout_metrics={"total_reward/mean": 9.0, "agent/reward/max": 9.0})

    rows = [{"gavel_task": "t", "gavel_uid": f"u{place}", "agent_ref": {"name": "agent"}} for place in range(4)]
    batch = {
        "task_name": ["gavel_a/train/x"] * 4, "idx": [0, 0, 1, 1],
        "message_log": [[{"token_ids": torch.tensor([7, 7])}]] * 4,
    }  # fmt: skip
    results = [
        result([1, 2], "u0", 0.5, "false"), result([0], "u1", None, "true"), result([0], "u2r1", None, "true"),
        result([0], "another", 1.0, "true"),
    ]  # fmt: skip
    wrapped = wrap_group(make, lambda values, count, prefix: {f"{prefix}/mean": sum(values) / count})
    final = wrapped(nemo_gym_rows=rows, results=results, input_batch=batch)
    assert final.final_batch["prompts"] == [[1, 2], [1, 2], [7, 7], [7, 7]]
    assert final.final_batch["gavel_graded"].tolist() == [1.0, 0.0, 0.0, 0.0], "the last verdict is another sample's"
    assert final.final_batch["total_reward"].tolist() == [0.5, 0.0, 0.0, 0.0]
    assert [one["uid"] for one in final.final_batch["gavel_told"]] == ["u0", "u1", "u2r1", "u3"]
    assert final.rollout_metrics == {"total_reward/mean": 0.5, "agent/reward/mean": 0.5}


def test_a_frame_breaks_control_tokens_alone() -> None:
    assert FRAME.break_controls("a <b> c") == "a <b> c"
    assert to_plain(FRAME)["special"]
