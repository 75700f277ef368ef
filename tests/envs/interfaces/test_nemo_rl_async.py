"""The lost-call table on NeMo-RL's own ``async_grpo_train``, also with stale and with restarted groups; needs
``NEMO_RL_ROOT``.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from tests.envs.interfaces.nemo_rl_support import ABSTAINED, LOST, ROOT, serving
from tests.support.runs import rows

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

import torch
from tests.envs.interfaces.nemo_rl_async import AsyncRow, AsyncTrained, Script, sort_wanted, train_async
from tests.envs.interfaces.nemo_rl_train import R, W, trainer_process

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.driver import TrainingStopped
from gavel.launch.comparing.ledgers import read_samples

pytestmark = pytest.mark.filterwarnings("ignore")
HALF, GONE = f"no {ABSTAINED}", f"{R} {LOST}"
VALUES = {R: Fraction(1), W: Fraction(0), HALF: Fraction(1, 2)}
TABLE = [[R, R, W, GONE], [R, GONE, GONE, GONE], [R, W, HALF, GONE], [R, R, R, GONE]]
HALVES = ("reward=tiered", "reward.abstain=0.5", "reward.incorrect=0")


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def check_table(step: list[AsyncRow]) -> None:
    """Every group of a step has the advantages and weights of its graded samples alone."""
    for number in {row.task for row in step}:
        lines = TABLE[number % len(TABLE)]
        group = [row for row in step if row.task == number]
        found = sorted((row.said, row.advantage) for row in group)
        wanted = sort_wanted(lines, VALUES, leave_one_out=True, normalize=True)
        assert [said for said, _ in found] == [said for said, _ in wanted]
        assert [one for _, one in found] == pytest.approx([one for _, one in wanted], abs=1e-5)
        assert {row.weight for row in group if row.said == GONE} == {0.0}
        assert {row.weight for row in group if row.said != GONE} == {1.0}


@pytest.fixture(scope="module")
def trained(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AsyncTrained, Path]]:
    """Two steps of a training that keeps checkpoints, two steps ahead of itself."""
    folder = tmp_path_factory.mktemp("trained")
    with serving() as server:
        more = {"grpo": {"val_at_start": True}, "validation": 4}
        yield (
            train_async(
                folder, server.base_url, Script(TABLE), steps=2, prompts=4, tasks=40, age=2, checkpoints=True,
                more=HALVES, **more,
            ),
            folder,
        )  # fmt: skip


@pytest.mark.timeout(600)
def test_lost_calls_leave_no_trace_in_asynchronous_steps(trained: tuple[AsyncTrained, Path]) -> None:
    done, _ = trained
    assert [len(step) for step in done.steps] == [16, 16]
    for step in done.steps:
        check_table(step)
    # By hand: 1 1 0 L, 1 L L L, 1 0 .5 L and 1 1 1 L, each compared with the other graded ones alone.
    first: dict[int, dict[str, float]] = {}
    for row in done.steps[0]:
        first.setdefault(row.task % 4, {})[row.said] = round(row.advantage, 2)
    assert first == {
        0: {R: 0.71, W: -1.0, GONE: 0.0},
        1: {R: 0.0, GONE: 0.0},
        2: {R: 2.12, W: -2.12, HALF: 0.0, GONE: 0.0},
        3: {R: 0.0, GONE: 0.0},
    }
    graded = [1, 1, 0, 1, 1, 0, 0.5, 1, 1, 1]
    for number in (1, 2):
        found = done.metrics["train", number]
        assert found["reward"] == found["reward/graded_mean"] == pytest.approx(sum(graded) / 10)
        assert found["mean_total_reward"] == pytest.approx(sum(graded) / 10)
        assert (found["max_total_reward"], found["min_total_reward"]) == (1, 0)
        assert (found["judge/samples"], found["judge/graded"], found["judge/ungraded"]) == (16, 10, 6)
        assert found["judge/ungraded/provider_unavailable"] == 6
        assert found["env/abstention/accuracy"] == pytest.approx(7 / 10)
        # 1 beside 0 and 0.5, whose mean is 0.25 and whose spread is sqrt(1/8).
        assert found["advantages/largest"] == pytest.approx(0.75 / math.sqrt(0.125), abs=1e-3)
        assert found["advantages/largest"] <= found["advantages/bound"] * 1.001


@pytest.mark.timeout(600)
def test_what_an_asynchronous_step_used_is_in_the_ledger(trained: tuple[AsyncTrained, Path]) -> None:
    done, folder = trained
    steps = rows(done.folder / "ledger", "steps.jsonl")
    ledger = {row["uid"]: row for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}
    train = [row for row in steps if row["split"] == "train"]
    assert [row["step"] for row in train] == [1] * 16 + [2] * 16
    assert {row["uid"]: row["weight"] for row in train} == {
        row["uid"]: float(ledger[row["uid"]]["result"]["status"] == "graded") for row in train
    }
    rollouts = sorted(
        (ledger[row["uid"]]["result"]["task_id"], ledger[row["uid"]]["result"]["rollout_index"]) for row in train
    )
    assert len(set(rollouts)) == 32
    # The first, second and third line of the four tasks: 1 1 1 1, 1 L 0 1, 0 L .5 1.
    for number, accuracy in enumerate((1, 2 / 3, 0.5)):
        assert done.metrics["validation", number]["judge/samples"] == 4
        assert done.metrics["validation", number]["accuracy"] == pytest.approx(accuracy)
    assert {sample.step for sample in read_samples(folder / "run")} == {1, 2}


@pytest.mark.timeout(600)
def test_stale_and_restarted_groups_train_on_the_same(trained: tuple[AsyncTrained, Path], tmp_path: Path) -> None:
    _, folder = trained
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    buffer = again / "run" / "checkpoints" / "step_2" / "replay_buffer.pt"
    state = torch.load(buffer, weights_only=False)
    kept = {one["gavel_told"][0]["uid"].partition("-")[0] for one in (each["batch"] for each in state["trajectories"])}
    lost = state["target_weight_versions"].index(2)
    for name in ("trajectories", "trajectory_versions", "target_weight_versions"):
        state[name].pop(lost)  # one group of the next step must be rolled out by the new collector
    torch.save(state, buffer)
    with serving() as server:
        done = train_async(
            again, server.base_url, Script(TABLE), steps=4, prompts=4, tasks=40, age=2, checkpoints=True, more=HALVES
        )
    assert [len(step) for step in done.steps] == [16, 16]
    for step in done.steps:
        check_table(step)
    assert set(done.metrics["train", 3]) >= {"reward", "judge/ungraded", "env/abstention/accuracy"}
    assert done.metrics["train", 3]["avg_trajectory_age"] > 0
    train = [row for row in rows(done.folder / "ledger", "steps.jsonl") if row["split"] == "train"]
    assert [row["step"] for row in train] == [step for step in (1, 2, 3, 4) for _ in range(16)]
    starts = [{row["uid"].partition("-")[0] for row in train if row["step"] == step} for step in (1, 2, 3, 4)]
    assert starts[0] == starts[1] == kept
    assert len(starts[2]) == 2  # restored groups beside new ones
    samples = read_samples(done.folder)
    assert [sample.step for sample in samples] == [row["step"] for row in train]
    assert sum(sample.reward is None for sample in samples) == sum(row["weight"] == 0 for row in train)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "one group"])
def test_a_replay_buffer_that_was_saved_without_marks_is_not_trained_on(
    trained: tuple[AsyncTrained, Path], tmp_path: Path, whole: bool
) -> None:
    _, folder = trained
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    buffer = again / "run" / "checkpoints" / "step_2" / "replay_buffer.pt"
    state = torch.load(buffer, weights_only=False)
    due = [
        one for one, target in zip(state["trajectories"], state["target_weight_versions"], strict=True) if target == 2
    ]
    for one in due if whole else due[:1]:
        for name in ("gavel_told", "gavel_graded"):
            del one["batch"][name]
    torch.save(state, buffer)
    before = (again / "run" / "ledger" / "steps.jsonl").read_bytes()
    with serving() as server, pytest.raises(TrainingStopped, match=r"remove replay_buffer\.pt"):
        train_async(again, server.base_url, Script(TABLE), steps=3, prompts=4, tasks=40, age=2, checkpoints=True)
    assert (again / "run" / "ledger" / "steps.jsonl").read_bytes() == before


@pytest.mark.timeout(600)
def test_options_of_the_estimator_hold_in_asynchronous_steps(tmp_path: Path) -> None:
    options = {"use_leave_one_out_baseline": False, "normalize_rewards": False, "advantage_clip_low": -0.5}
    with serving() as server:
        done = train_async(
            tmp_path, server.base_url, Script([[R, R, W, GONE]]), steps=1, prompts=1, tasks=4,
            grpo={**options, "overlong_filtering": True, "seq_logprob_error_threshold": 1.5},
        )  # fmt: skip
    (step,) = done.steps
    # 1 1 0 L, none normalised: a mean of 2/3, and what lies below -0.5 is cut there.
    assert sorted((row.said, round(row.advantage, 3), row.weight) for row in step) == sorted(
        [(R, 0.333, 1.0), (R, 0.333, 1.0), (W, -0.5, 1.0), (GONE, 0.0, 0.0)]
    )


@pytest.mark.timeout(600)
def test_a_validation_that_fails_before_the_first_step_ends_the_training_there(tmp_path: Path) -> None:
    with serving() as server, pytest.raises(TrainingStopped, match="no sample of the validation was graded"):
        train_async(
            tmp_path, server.base_url, Script([[GONE]]), steps=1, prompts=1, generations=2, tasks=4, validation=2,
            grpo={"val_at_start": True},
        )  # fmt: skip


@pytest.mark.timeout(600)
def test_a_generation_error_and_a_failure_policy_are_judged_on_what_the_batch_carries(tmp_path: Path) -> None:
    # The first sample's reply fails in the generation, which NeMo-RL swallows: no verdict, so it is ungraded.
    with serving() as server, pytest.raises(TrainingStopped, match=r"failure=strict.*its episode was cut"):
        train_async(
            tmp_path, server.base_url, Script([["!", R]]), steps=1, prompts=1, generations=2, tasks=4,
            failure=FailurePolicy("strict"),
        )  # fmt: skip
