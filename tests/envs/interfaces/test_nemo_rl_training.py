"""NeMo-RL's own ``grpo_train`` from the YAML we emit, with a policy that learns nothing; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.envs.interfaces.nemo_rl_support import LOST, ROOT, serving
from tests.support.runs import rows

from gavel.envs.failure_policy import FailurePolicy

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

import torch
from tests.envs.interfaces.nemo_rl_train import R, W, advantages, train, trainer_process

from gavel.envs.interfaces.nemo_rl.driver import TrainingStopped

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def test_a_lost_judge_call_leaves_its_siblings_the_advantages_of_the_graded_alone(tmp_path: Path) -> None:
    replies = [R, R, W, R, W, R, W, f"{R} {LOST}"]
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: replies[count])
    batch = done.batches[0]
    # By hand, leave-one-out over the other six graded: 1 - 3/6 over sqrt(6/5 * 1/4), and 0 - 4/6 over sqrt(6/5 * 2/9).
    one, zero = 0.5 / math.sqrt(0.3), -(2 / 3) / math.sqrt(6 / 5 * 2 / 9)
    assert advantages(batch) == [round(value, 3) for value in (one, one, zero, one, zero, one, zero, 0.0)]
    assert [round(one, 2), round(zero, 2)] == [0.91, -1.29]
    assert batch["sample_mask"].tolist() == [1.0] * 7 + [0.0]
    train_metrics = done.metrics["train", 1]
    assert train_metrics["reward"] == pytest.approx(4 / 7)
    assert train_metrics["reward/graded_mean"] == pytest.approx(4 / 7)
    assert train_metrics["judge/ungraded"] == 1
    assert train_metrics["env/abstention/accuracy"] == pytest.approx(4 / 7)
    steps = rows(done.folder / "ledger", "steps.jsonl")
    ledger = {row["uid"]: row for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}
    assert {(row["step"], row["split"]) for row in steps} == {(1, "train")}
    assert {row["uid"]: row["weight"] for row in steps} == {
        uid: float(row["result"]["status"] == "graded") for uid, row in ledger.items()
    }


def test_an_all_ungraded_group_teaches_nothing_and_leaves_the_other_group_alone(tmp_path: Path) -> None:
    with serving() as server:
        alone = train(tmp_path, server.base_url, lambda _, count: [R, W, W, R][count], generations=4)
    other = tmp_path / "other"
    other.mkdir()
    with serving() as server:
        done = train(other, server.base_url, lambda _, count: [R, W, W, R, *[LOST] * 4][count], tasks=2, generations=4)
    batch = done.batches[0]
    # The trainer shuffles nothing here: the first four rows are the first task's.
    assert advantages(batch) == advantages(alone.batches[0]) + [0.0] * 4
    assert batch["sample_mask"].tolist() == [1.0] * 4 + [0.0] * 4
    assert bool(torch.isfinite(batch["advantages"]).all())


def test_only_one_graded_sibling_gives_no_advantage_rather_than_an_explosion(tmp_path: Path) -> None:
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: [R, LOST, LOST, LOST][count], generations=4)
    assert advantages(done.batches[0]) == [0.0] * 4


def test_nothing_changes_where_everything_is_graded(tmp_path: Path) -> None:
    replies = [R, R, W, R, W, R, W, R]
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: replies[count])
    assert [round(value, 2) for value in advantages(done.batches[0])] == [0.8, 0.8, -1.46, 0.8, -1.46, 0.8, -1.46, 0.8]
    assert done.metrics["train", 1]["reward"] == pytest.approx(5 / 8)


def test_an_episode_cut_by_the_turn_cap_has_no_weight_and_no_advantage(tmp_path: Path) -> None:
    with serving() as server:
        done = train(
            tmp_path, server.base_url, lambda *_: "yes", env="vera_mh", generations=4, grpo={"max_rollout_turns": 1}
        )
    batch = done.batches[0]
    assert batch["sample_mask"].tolist() == [0.0] * 4
    assert advantages(batch) == [0.0] * 4
    assert done.metrics["train", 1]["judge/ungraded/episode_cut"] == 4


def test_asynchronous_rollouts_train_on_the_same(tmp_path: Path) -> None:
    engine = {"policy": {"generation": {"vllm_cfg": {"async_engine": True}}}}
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: [R, R, W, LOST][count], generations=4, **engine)
    batch = done.batches[0]
    assert sorted(batch["sample_mask"].tolist()) == [0.0, 1.0, 1.0, 1.0]
    # Two right and one wrong: (1 - 1/2) / sqrt(2 * 1/4), and (0 - 1) over no spread at all.
    assert sorted(advantages(batch)) == sorted([round(0.5 / math.sqrt(0.5), 3)] * 2 + [-1.0, 0.0])


def test_validation_accuracy_counts_graded_samples_only(tmp_path: Path) -> None:
    # The first eight replies are the training's, then four are validated: right, wrong, lost, right.
    replies = [R, W] * 4 + [R, W, LOST, R]
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: replies[count], validation=4)
    found = done.metrics["validation", 1]
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["judge/ungraded"] == 1
    assert found["env/abstention/accuracy"] == pytest.approx(2 / 3)
    steps = [row for row in rows(done.folder / "ledger", "steps.jsonl") if row["split"] == "validation"]
    assert sorted(row["weight"] for row in steps) == [0.0, 1.0, 1.0, 1.0]


def test_a_validation_of_placeholders_alone_stops_the_run(tmp_path: Path) -> None:
    with serving() as server, pytest.raises(TrainingStopped, match="no sample of the validation was graded"):
        train(tmp_path, server.base_url, lambda _, count: R if count < 8 else LOST, validation=2)


def test_strict_stops_at_the_first_ungraded_sample(tmp_path: Path) -> None:
    with serving() as server, pytest.raises(TrainingStopped, match=r"failure=strict.*provider_unavailable"):
        train(
            tmp_path, server.base_url, lambda _, count: [R, LOST][count], generations=2, failure=FailurePolicy("strict")
        )
    assert not (tmp_path / "run" / "ledger" / "steps.jsonl").read_bytes()
