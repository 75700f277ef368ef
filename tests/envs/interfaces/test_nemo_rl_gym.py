"""Trainings whose rollouts NeMo Gym makes, on the real code of NeMo-RL and of NeMo Gym: see ``nemo_rl_gym``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_gym import GYM, train_gym
from tests.envs.interfaces.nemo_rl_support import LOST, OPENING, RIGHT, ROOT, answer_all, serving, write_tasks
from tests.envs.vera_mh import support as vera
from tests.support.runs import rows

if not (ROOT and GYM):
    pytest.skip("NEMO_RL_ROOT and an importable nemo_gym are needed together", allow_module_level=True)

from tests.envs.interfaces.nemo_rl_exact import wanted_advantages
from tests.envs.interfaces.nemo_rl_train import R, W, advantages, trainer_process

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = {"a": "abstention", "b": "instruction_following", "c": "vera_mh"}
FIRST = (R, W, R, f"{R} {LOST}", W, R, W, R)
TALKS = ("yes", R, "yes", LOST)


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def words(tmp_path: Path, url: str) -> list[str]:
    """A training in all three environments, with a task of each."""
    found = [
        f"judge.base_url={url}",
        "judge.model=judge-all",
        "judge.attempts=1",
        "failure.max_ungraded_fraction=1.0",
        "services.simulator.mode=external",
        f"services.simulator.base_url={url}",
        "services.simulator.model=simulator-model",
        "services.simulator.attempts=1",
    ]
    for name, env in NAMES.items():
        path = write_tasks(tmp_path / f"{env}.jsonl", env, 1)
        found += [f"env@envs.{name}={env}", f"envs.{name}.tasks.path={path}"]
    own = [vera.SMALL, "env.simulators=[{service: simulator}]", "env.max_turns=4", "env.parse_retries=0"]
    return [
        *found,
        "envs.a.rubrics.abstention.profile=gavel/qa-abstention-v1",
        "envs.a.weight=0.5",
        *(f"envs.c.{word}" for word in own),
    ]


def make_say() -> Any:
    """Replies to questions and to conversations, each in its own order."""
    asked, talked = iter(FIRST * 9), iter(TALKS * 9)

    def say(prompt: str, _: int) -> str:
        if OPENING not in prompt:
            return next(asked)
        return next(talked) if prompt.count("<|im_start|>assistant") == 1 else "yes"

    return say


@pytest.mark.timeout(600)
def test_three_environments_in_one_step_are_played_graded_and_told_apart(tmp_path: Path) -> None:
    with serving(reply=answer_all) as server:
        done = train_gym(
            tmp_path, server.base_url, make_say(), tasks=3, generations=4, words=words(tmp_path, server.base_url)
        )
    (batch,) = done.batches
    found, ledger = done.metrics["train", 1], done.folder / "ledger"
    results = {name: [row["result"] for row in rows(ledger, f"{name}.rows.jsonl")] for name in NAMES}
    assert {name: len(made) for name, made in results.items()} == {"a": 4, "b": 4, "c": 4}
    rewards = {
        name: [one["reward"]["value"] for one in made if one["status"] == "graded"] for name, made in results.items()
    }
    wanted: list[list[float]] = [
        [
            *wanted_advantages([Fraction(value) for value in values], None, leave_one_out=True, normalize=True),
            *[0.0] * (4 - len(values)),
        ]
        for values in rewards.values()
    ]
    given = [float(one) for one in batch["advantages"][:, 0]]
    groups = [sorted(given[place : place + 4]) for place in (0, 4, 8)]
    assert [one for group in groups for one in group] == pytest.approx(
        [one for group in wanted for one in sorted(group)], abs=1e-5
    )
    lost = {name: 4 - len(values) for name, values in rewards.items()}
    assert lost["c"] == 1
    assert sum(lost.values()) == found["judge/ungraded"] == (batch["sample_mask"] == 0).sum() == 2
    assert sorted(set(batch["sample_mask"][:4].tolist())) in ([0.0, 0.5], [0.5])
    for name, values in rewards.items():
        assert found[f"env/{name}/samples"] == 4
        assert found[f"env/{name}/ungraded_rate"] == lost[name] / 4
        assert found[f"env/{name}/reward"] == pytest.approx(sum(values) / len(values))
        assert found[f"gavel_{name}_agent/reward/mean"] == pytest.approx(sum(values) / len(values))
    whole = [value for values in rewards.values() for value in values]
    assert found["reward"] == found["total_reward/mean"] == pytest.approx(sum(whole) / len(whole))
    assert found["env/a/accuracy"] == pytest.approx(sum(rewards["a"]) / len(rewards["a"]))
    # Each conversation was played in turns: the persona's words lie between two replies, and only these are trained on.
    assert {len(one["transcript"]["messages"]) for one in results["c"] if one["status"] == "graded"} == {5}
    steps = rows(ledger, "steps.jsonl")
    uids = {row["uid"]: row["verdict"] for name in NAMES for row in rows(ledger, f"{name}.rows.jsonl")}
    assert {row["uid"] for row in steps} == set(uids)
    assert all((row["weight"] == 0) == (uids[row["uid"]]["failure"] is not None) for row in steps)
    assert {one.body["model"] for one in server.requests} == {"judge-all", "simulator-model"}


@pytest.mark.timeout(600)
def test_a_lost_call_is_out_of_the_baseline_and_of_the_validation(tmp_path: Path) -> None:
    order = [R, R, W, R, W, R, W, f"{R} {LOST}"]
    with serving() as server:
        done = train_gym(
            tmp_path,
            server.base_url,
            lambda _, count: order[count % 8] if count < 16 else R,
            tasks=1,
            validation=8,
            grpo={"val_at_start": True, "val_period": 5},
        )
    (batch,) = done.batches
    assert sorted(advantages(batch)) == [-1.291] * 3 + [0.0] + [0.913] * 4
    assert batch["sample_mask"].sum() == 7
    assert done.metrics["validation", 0]["accuracy"] == pytest.approx(4 / 7)
    assert done.metrics["train", 1]["reward"] == pytest.approx(4 / 7)
    assert done.metrics["train", 1]["judge/ungraded/provider_unavailable"] == 1
    splits = [row["split"] for row in rows(done.folder / "ledger", "steps.jsonl")]
    assert sorted(splits) == ["train"] * 8 + ["validation"] * 8
    assert RIGHT in str(rows(done.folder / "ledger", "abstention.rows.jsonl")[0]["result"]["transcript"])
