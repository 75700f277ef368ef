"""NeMo-RL's own estimators and ``grpo_train`` under the hooks against exact fractions; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_support import ABSTAINED, LOST, ROOT, serving
from tests.support.runs import rows

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

import torch
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_exact import groups, wanted_advantages
from tests.envs.interfaces.nemo_rl_train import R, W, advantages, train, trainer_process

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.bounds import AdvantageOutOfBounds
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.masking import GRADED

pytestmark = pytest.mark.filterwarnings("ignore")
ABSTAIN = f"no {ABSTAINED}"


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


@pytest.fixture
def estimators(tmp_path: Path) -> Iterator[Any]:
    import nemo_rl.algorithms.advantage_estimator as module

    with harness.hooked(Driver(harness.policy_section(harness.make_tokenizer()), FailurePolicy())):
        yield module


def batch_of(table: list[tuple[list[Fraction], int | None]]) -> tuple[Any, Any, Any]:
    """Groups, one after the other: prompts, rewards and the graded column."""
    prompts = torch.tensor([[number] for number, (rewards, _) in enumerate(table) for _ in rewards])
    values = [0.0 if place == lost else float(one) for rewards, lost in table for place, one in enumerate(rewards)]
    graded = [float(place != lost) for rewards, lost in table for place, _ in enumerate(rewards)]
    return prompts, torch.tensor(values), torch.tensor(graded)


@pytest.mark.parametrize("normalize", [True, False], ids=["normalised", "plain"])
@pytest.mark.parametrize("leave_one_out", [True, False], ids=["leave-one-out", "whole"])
def test_nemo_rls_grpo_estimator_gives_exact_advantages(estimators: Any, leave_one_out: bool, normalize: bool) -> None:
    from nemo_rl.algorithms.loss import ClippedPGLossConfig

    options = estimators.AdvEstimatorConfig(use_leave_one_out_baseline=leave_one_out, normalize_rewards=normalize)
    estimator = estimators.GRPOAdvantageEstimator(options, ClippedPGLossConfig.model_construct())
    for size in range(2, 33):  # NeMo-RL looks through the whole batch for each of its groups
        table = list(groups((size,)))
        prompts, rewards, graded = batch_of(table)
        mask = torch.ones(len(rewards), 1) * graded.unsqueeze(-1)
        found = estimator.compute_advantage(
            prompt_ids=prompts, rewards=rewards, mask=mask, repeated_batch={GRADED: graded}
        )
        wanted = [
            one
            for group, lost in table
            for one in wanted_advantages(group, lost, leave_one_out=leave_one_out, normalize=normalize)
        ]
        assert torch.allclose(found[:, 0].double(), torch.tensor(wanted, dtype=torch.float64), atol=1e-5, rtol=0), size


def wanted_over_the_batch(table: list[tuple[list[Fraction], int | None]], *, minus_baseline: bool) -> list[float]:
    """Reinforce++: the reward, or its distance from its group's mean, normalised over every sample that weighs
    something.
    """
    values: list[Fraction | None] = []
    for rewards, lost in table:
        kept = [one for place, one in enumerate(rewards) if place != lost]
        mean = sum(kept, Fraction(0)) / len(kept) if minus_baseline and len(kept) > 1 else Fraction(0)
        alone = minus_baseline and len(kept) < 2  # NeMo-RL's rule: its baseline is its reward
        values += [None if place == lost else Fraction(0) if alone else one - mean for place, one in enumerate(rewards)]
    counted = [one for one in values if one is not None]
    mean = sum(counted, Fraction(0)) / len(counted)
    variance = max(float(sum(((one - mean) ** 2 for one in counted), Fraction(0)) / len(counted)), 1e-8)
    return [0.0 if one is None else float(one - mean) / variance**0.5 for one in values]


@pytest.mark.parametrize("minus_baseline", [True, False])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 13, 16, 31, 32])
def test_nemo_rls_reinforce_plus_plus_gives_exact_advantages(estimators: Any, size: int, minus_baseline: bool) -> None:
    from nemo_rl.algorithms.loss import ClippedPGLossConfig

    options = estimators.AdvEstimatorConfig(name="reinforce_plus_plus", minus_baseline=minus_baseline)
    loss = ClippedPGLossConfig.model_construct(
        use_kl_in_reward=False, reference_policy_kl_penalty=0.0, reference_policy_kl_type="k3"
    )
    estimator = estimators.ReinforcePlusPlusAdvantageEstimator(options, loss)
    for table in [list(groups((size,))), *([one] for one in groups((size,)))]:
        prompts, rewards, graded = batch_of(table)
        mask = torch.ones(len(rewards), 1) * graded.unsqueeze(-1)
        found = estimator.compute_advantage(
            prompt_ids=prompts, rewards=rewards, mask=mask, repeated_batch={GRADED: graded}
        )
        wanted = torch.tensor(wanted_over_the_batch(table, minus_baseline=minus_baseline), dtype=torch.float64)
        assert torch.allclose(found[:, 0].double(), wanted, atol=1e-5, rtol=0), table[0]


def tiered(count: int, first: str, others: str, *, lost: int = 0) -> list[str]:
    return [first, *[others] * (count - 1 - lost), *[f"{R} {LOST}"] * lost]


@pytest.mark.parametrize(
    ("replies", "abstain", "options"),
    [
        (tiered(16, R, ABSTAIN), 0.3, {}),
        (tiered(16, W, ABSTAIN), 0.3, {}),
        (tiered(8, R, ABSTAIN, lost=1), 0.3, {}),
        (tiered(16, R, ABSTAIN, lost=1), 0.7, {}),
        (tiered(13, R, ABSTAIN), 1 / 3, {}),
        (tiered(12, R, ABSTAIN), 0.9, {"use_leave_one_out_baseline": False}),
        (tiered(12, R, ABSTAIN), 0.9, {"normalize_rewards": False}),
        ([R, ABSTAIN, W, ABSTAIN, R, W, ABSTAIN, f"{W} {LOST}"], 0.3, {}),
        ([ABSTAIN] * 8, 0.3, {}),
        ([R, ABSTAIN], 0.3, {}),
    ],
)
def test_grpo_train_gives_exact_advantages(
    tmp_path: Path, replies: list[str], abstain: float, options: dict[str, Any]
) -> None:
    with serving() as server:
        done = train(
            tmp_path,
            server.base_url,
            lambda _, count: replies[count],
            generations=len(replies),
            grpo=options,
            more=("reward=tiered", f"reward.abstain={abstain}", "reward.incorrect=0"),
        )
    value = {R: Fraction(1), W: Fraction(0), ABSTAIN: Fraction(abstain)}
    kept = [value[one] for one in replies if one in value]
    wanted = wanted_advantages(
        kept,
        None,
        leave_one_out=options.get("use_leave_one_out_baseline", True),
        normalize=options.get("normalize_rewards", True),
    )
    found = [float(one) for one in done.batches[0]["advantages"][:, 0]]
    assert found == pytest.approx([*wanted, *[0.0] * (len(replies) - len(kept))], abs=1e-5)
    metrics = done.metrics["train", 1]
    assert metrics["advantages/largest"] == pytest.approx(max(map(abs, wanted)), abs=1e-5)
    assert metrics["advantages/largest"] <= metrics["advantages/bound"] * 1.001 + 1e-5


def test_an_advantage_that_its_rewards_cannot_give_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nemo_rl.algorithms.advantage_estimator as module

    whole = module.GRPOAdvantageEstimator.compute_advantage

    def wrong(self: Any, *args: Any, **options: Any) -> Any:
        return whole(self, *args, **options) * 7748

    monkeypatch.setattr(module.GRPOAdvantageEstimator, "compute_advantage", wrong)
    with (
        serving() as server,
        pytest.raises(AdvantageOutOfBounds, match="step 1: a sample of task abstention-0") as failed,
    ):
        train(tmp_path, server.base_url, lambda _, count: [R, W, W, R][count], generations=4)
    assert (failed.value.step, failed.value.exit_code) == (1, 4)
    assert failed.value.value > 1000 > failed.value.bound


DYNAMIC = {"use_dynamic_sampling": True}


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_dynamic_sampling_keeps_whole_groups_or_nothing_of_them(tmp_path: Path, leave_one_out: bool) -> None:
    # Of two prompts a step: the first has two lost samples, the second no spread, the fourth does not fit any more.
    replies = [*[R, W, LOST, LOST], *[W, W, W, W], *[R, W, W, R], *[R, W, R, W]]
    options = {**DYNAMIC, "use_leave_one_out_baseline": leave_one_out, "batch_multiplier": 2}
    with serving() as server:
        done = train(
            tmp_path,
            server.base_url,
            lambda _, count: replies[count],
            tasks=4,
            prompts=4,
            generations=4,
            grpo={**options, "num_prompts_per_step": 2},
        )
    batch = done.batches[0]
    first = wanted_advantages([Fraction(1), Fraction(0)], None, leave_one_out=leave_one_out, normalize=True)
    third = wanted_advantages(
        [Fraction(one) for one in (1, 0, 0, 1)], None, leave_one_out=leave_one_out, normalize=True
    )
    assert [float(one) for one in batch["advantages"][:, 0]] == pytest.approx([*first, 0.0, 0.0, *third], abs=1e-5)
    assert batch["sample_mask"].tolist() == [1.0, 1.0, 0.0, 0.0, *[1.0] * 4]
    assert done.metrics["train", 1]["filtered_reward"] == pytest.approx(3 / 6)
    tasks = {row["uid"]: row["result"]["task_id"] for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}
    weights = [(tasks[row["uid"]], row["weight"]) for row in rows(done.folder / "ledger", "steps.jsonl")]
    assert weights == [("abstention-0", 1.0)] * 2 + [("abstention-0", 0.0)] * 2 + [("abstention-2", 1.0)] * 4


@pytest.mark.parametrize("odd", [[R, W, W, W], [W, R, R, R], [R, W, W, LOST]])
def test_dynamic_sampling_keeps_a_group_with_one_odd_reward_whole(tmp_path: Path, odd: list[str]) -> None:
    replies = [*odd, *[R, W, R, W]]
    with serving() as server:
        done = train(
            tmp_path, server.base_url, lambda _, count: replies[count], tasks=2, prompts=1, generations=4, grpo=DYNAMIC
        )
    kept = [Fraction(int(one == R)) for one in odd if one != LOST]
    wanted = wanted_advantages(kept, None, leave_one_out=True, normalize=True)
    found = [float(one) for one in done.batches[0]["advantages"][:, 0]]
    assert found == pytest.approx([*wanted, *[0.0] * (4 - len(wanted))], abs=1e-5)
    assert advantages(done.batches[0])[0] != 0
