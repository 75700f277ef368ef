"""A mistake at the first try is said before anything is spent or written, and costs nothing once it is mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, POLICY, STRICT, arguments, gavel, number_of, reply, rows, source_row, write_tasks

from gavel.envs.registry import check_reward
from gavel.models.calls.contact import check_first_contact
from gavel.models.errors import ConfigError
from gavel.models.service import Service


def with_a_bad_row(path: Path) -> Path:
    bad = {key: value for key, value in source_row(1).items() if key != "answer"}
    path.write_bytes(orjson.dumps(source_row(0)) + b"\n" + orjson.dumps(bad) + b"\n")
    return path


def reward_of(run: Path) -> dict[str, object]:
    found = orjson.loads((run / "manifest.json").read_bytes())["reward"]
    assert isinstance(found, dict)
    return found


async def test_a_model_name_that_is_not_served_leaves_no_folder(tmp_path: Path) -> None:
    tasks, run = with_a_bad_row(tmp_path / "t.jsonl"), tmp_path / "run"
    async with FaultServer(reply=reply, model=POLICY, owner="vllm") as policy, FaultServer(reply=reply) as judge:
        words = arguments(tasks, run, policy.base_url, judge_url=judge.base_url)
        wrong = await gavel(*words, "policy.model=my-model")
        assert (wrong.code, run.exists()) == (2, False), wrong.err
        assert "policy.model" in wrong.err
        right = await gavel(*words)
    assert right.code == 3, right.err
    assert len(rows(run)) == 1


async def test_a_folder_with_nothing_but_skipped_tasks_takes_another_identity(tmp_path: Path) -> None:
    tasks, run = with_a_bad_row(tmp_path / "t.jsonl"), tmp_path / "run"
    async with FaultServer(reply=reply) as server:
        words = arguments(tasks, run, server.base_url)
        first = [word for word in words if not word.startswith("judge")] + [
            "judge=qwen3_32b",
            "judge.python=/nonexistent/python",
        ]
        assert (await gavel(*first)).code == 2
        assert len(rows(run, "errors.jsonl")) == 1
        done = await gavel(*words)
    assert done.code == 3, done.err
    assert len(rows(run, "errors.jsonl")) == 1, "the skipped task stands there once"


PROMPTS = Path(__file__).parents[3] / "shared" / "data" / "abstention"
OTHERS = "tiered, omniscience"


@pytest.mark.parametrize("more", [(), ("dry_run=true",)])
async def test_a_reward_of_another_environment_is_refused_before_anything_is_asked(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url)
        done = await gavel(*words, "reward=mean", *more)
        assert server.paths.total() == 0
    assert done.code == 2
    assert "reward.name" in done.err
    assert OTHERS in done.err
    assert not (tmp_path / "run").exists()


async def test_a_rescoring_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url))
        ).code == 0
    for more in ((), ("dry_run=true",)):
        done = await gavel("rescore", str(tmp_path / "run"), "reward=mean", *more)
        assert done.code == 2
        assert OTHERS in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t.jsonl"]


async def test_serving_and_training_refuse_a_reward_of_another_environment(tmp_path: Path) -> None:
    nowhere = ("judge.base_url=http://127.0.0.1:1/v1", f"judge.model={JUDGE}")
    for verb in ("serve", "train"):
        done = await gavel(verb, "env=abstention", STRICT, *nowhere, "reward=mean", "dry_run=true", cwd=tmp_path)
        assert done.code == 2, done.out + done.err
        assert OTHERS in done.err
    done = await gavel(
        "serve", "env=abstention", STRICT, *nowhere, "also.x=env=instruction_following reward=tiered", "dry_run=true"
    )
    assert "also.x: reward.name" in done.err


def test_an_environment_whose_rewards_are_not_known_takes_any() -> None:
    check_reward("somebody_elses", {"name": "mean"})
    check_reward("abstention", {"name": "somebody_elses"})  # whether there is one is another question
    with pytest.raises(ConfigError) as caught:
        check_reward("vera_mh", {"name": "mean"})
    assert (caught.value.found, caught.value.allowed) == ("mean (for env=instruction_following)", "vera")


async def test_a_reward_that_rewarded_nothing_is_not_kept_and_one_that_did_is_named_at_the_end(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n <= 2 else None) as judge,
    ):
        words = [*arguments(tasks, run, policy.base_url, judge_url=judge.base_url), "judge.attempts=1"]
        assert (await gavel(*words, "reward.abstain=0.1")).code == 3
        second = await gavel(*words, "reward.abstain=0.4")
        third = await gavel(*words, "reward.abstain=0.5")
    assert (second.code, reward_of(run)["abstain"]) == (0, 0.4)
    assert "keeps it" not in second.out
    assert third.out.count("keeps it") == 2
    assert third.out.rindex("keeps it") > third.out.index("run folder:")


async def test_a_base_url_without_v1_is_refused_with_the_one_that_answers(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, f"judge.base_url={server.url}/"
        )
        done = await gavel(*words)
        assert done.code == 2, done.out + done.err
        assert "judge.base_url" in done.err
        assert f"did you mean {server.url}/v1?" in done.err
        assert server.count == 0
        with pytest.raises(ConfigError, match="did you mean"):
            await check_first_contact("judge", Service("external", "m", server.url))
        await check_first_contact("judge", Service("external", "m", server.base_url))
        await check_first_contact(
            "judge", Service("external", "m", f"{server.url}/elsewhere")
        )  # a gateway need not list its models
    assert not (tmp_path / "run").exists()


async def test_a_server_that_does_not_answer_is_named_before_the_first_row(tmp_path: Path) -> None:
    async with FaultServer() as gone:
        pass
    async with FaultServer(reply=reply) as policy:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", policy.base_url, judge_url=gone.base_url
        )
        done = await gavel(*words, "judge.attempts=1")
    assert done.code == 3, done.out + done.err
    warning = next(line for line in done.out.splitlines() if "does not answer yet" in line)
    assert warning.startswith(f"judge: {gone.base_url} ")
    assert done.out.index("does not answer yet") < done.out.index("rows to do"), "before the first row"
    assert "Connection refused" in done.out
    assert "ssl:default" not in done.out
    assert "Connect call failed" not in done.out


@pytest.mark.parametrize("more", [("inspect=q-1",), ()])
async def test_a_folder_that_holds_no_run_is_said_with_the_one_that_does(more: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "runs" / "demo", server.base_url))
        ).code == 0
    done = await gavel("rollout", "runs/dmo", *more, cwd=tmp_path)
    assert done.code == 2
    assert "there is no run in this folder" in done.err
    assert "did you mean runs/demo?" in done.err
    assert not (tmp_path / "runs" / "dmo").exists()


async def test_inspecting_a_skipped_task_says_why_it_was_skipped(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(with_a_bad_row(tmp_path / "t.jsonl"), tmp_path / "run", server.base_url)
        done = await gavel(*words, "inspect=q-1")
    assert done.code == 3, done.err
    assert "q-1 was skipped" in done.out
    assert "t.jsonl:2" in done.out
    assert "answer" in done.out


async def test_inspect_calls_the_judge_as_the_config_does(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", server.base_url, "inspect=q-0")
        )
    assert done.code == 0, done.err
    assert "general" not in done.out


async def test_the_end_of_a_run_says_which_verdicts_the_judge_did_not_give(tmp_path: Path) -> None:
    if not (PROMPTS / "omniscience_grader.txt").is_file():
        pytest.skip("the ported prompt is not at hand: no ../shared/data/abstention/omniscience_grader.txt")

    def vague(body: dict[str, Any]) -> str:
        number = number_of(body)
        return f"\\boxed{{Town {number + 1}}}" if body["model"] == POLICY else "B" if number == 0 else "no idea"

    async with FaultServer(reply=vague) as server:
        words = [
            word
            for word in arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", server.base_url)
            if word != STRICT
        ]
        assets = (f"assets.mirror={PROMPTS}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true")
        done = await gavel(*words, *assets)
        again = await gavel("regrade", str(tmp_path / "run"), "only=all", f"into={tmp_path / 'child'}")
    assert done.code == 0, done.out + done.err
    for out in (done.out, again.out):
        assert "2 of 3 verdicts were not given by the judge" in out
        assert STRICT in out
