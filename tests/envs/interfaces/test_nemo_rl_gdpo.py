"""GDPO on the components of our rewards: NeMo-RL's own estimator, and its own trainers; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_support import ABSTAINED, LOST, ROOT, serving

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

import torch
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_async import Script, train_async
from tests.envs.interfaces.nemo_rl_train import R, W, train, trainer_process

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.masking import GRADED, TOLD
from gavel.models.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS = {"use_leave_one_out_baseline": True, "normalize_rewards": True, "reward_weights": None}
HALF = f"no {ABSTAINED}"


def stock(prompts: Sequence[int], columns: Mapping[str, Sequence[float]], **settings: Any) -> list[float]:
    """What NeMo-RL's own estimator gives, without any hook."""
    from nemo_rl.algorithms.advantage_estimator import GDPOAdvantageEstimator

    batch = {f"reward/{name}": torch.tensor(values) for name, values in columns.items()}
    estimator = GDPOAdvantageEstimator(SimpleNamespace(**{**SETTINGS, **settings}), SimpleNamespace())
    ids, mask = torch.tensor(prompts).unsqueeze(1), torch.ones(len(prompts), 2)
    return [float(one) for one in estimator.compute_advantage(ids, torch.zeros(len(prompts)), mask, batch)[:, 0]]


def hooked(prompts: Sequence[int], rows: Sequence[Mapping[str, float] | None], **settings: Any) -> list[float]:
    """What it gives under the hooks; a row is a sample's components, None where it is not graded."""
    from nemo_rl.algorithms.advantage_estimator import GDPOAdvantageEstimator

    graded = torch.tensor([float(row is not None) for row in rows])
    told = [
        {"uid": str(place), "verdict": {"components": row} if row is not None else None, "figures": None}
        for place, row in enumerate(rows)
    ]
    driver = Driver(
        harness.policy_section(harness.make_tokenizer()), FailurePolicy(), several=settings.pop("several", False)
    )
    with harness.hooked(driver):
        estimator = GDPOAdvantageEstimator(SimpleNamespace(**{**SETTINGS, **settings}), SimpleNamespace())
        found = estimator.compute_advantage(
            prompt_ids=torch.tensor(prompts).unsqueeze(1),
            rewards=torch.tensor([sum(row.values()) if row else 0.0 for row in rows]),
            mask=torch.ones(len(rows), 2) * graded.unsqueeze(-1),
            repeated_batch={GRADED: graded, TOLD: told},
        )
    return [float(one) for one in found[:, 0]]


PROMPTS = [0, 0, 0, 0, 1, 1, 1, 1]
A, B = [1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 1.0, 0.25], [0.0, 2.0, 2.0, 1.0, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("settings", [{}, {"reward_weights": [0.25, 2.0]}, {"normalize_rewards": False},
                                      {"use_leave_one_out_baseline": False}])  # fmt: skip
@pytest.mark.parametrize("lost", [(), (3,), (0, 4), (0, 1, 2), (0, 1, 2, 3)])
def test_gdpo_gives_what_nemo_rl_gives_with_lost_rows_taken_out(
    lost: tuple[int, ...], settings: dict[str, Any]
) -> None:
    kept = [place for place in range(8) if place not in lost]
    wanted = stock(
        [PROMPTS[place] for place in kept], {"a": [A[one] for one in kept], "b": [B[one] for one in kept]}, **settings
    )
    found = hooked(PROMPTS, [None if one in lost else {"a": A[one], "b": B[one]} for one in range(8)], **settings)
    assert [found[place] for place in kept] == pytest.approx(wanted, abs=2e-5)
    assert all(found[place] == 0 for place in lost)


def test_a_component_that_a_sample_lacks_is_no_zero() -> None:
    # Group 0 has a alone in its first two samples; 1 and 0 of b are compared with one another, not with two zeros.
    rows = [{"a": 1.0}, {"a": 0.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.0}]
    found = hooked([0] * 4, rows, normalize_rewards=False)
    # a: 1 - 2/3, 0 - 1, 1 - 2/3, 1 - 2/3; b: none, none, 1 - 0, 0 - 1; then over the batch.
    raw = [1 / 3, -1.0, 1 / 3 + 1, 1 / 3 - 1]
    mean = sum(raw) / 4
    spread = math.sqrt(sum((one - mean) ** 2 for one in raw) / 3)
    assert found == pytest.approx([(one - mean) / spread for one in raw], abs=1e-5)
    zeros = stock([0] * 4, {"a": [1.0, 0.0, 1.0, 1.0], "b": [0.0, 0.0, 1.0, 0.0]}, normalize_rewards=False)
    assert max(abs(one - other) for one, other in zip(found, zeros, strict=True)) > 0.1


def test_two_environments_with_a_component_each_are_compared_apart_in_any_step() -> None:
    rows: list[dict[str, float] | None] = [{"a": 1.0}, {"a": 0.0}, {"b": 5.0}, {"b": 1.0}]
    assert hooked([0, 0, 1, 1], rows, normalize_rewards=False, several=True) == pytest.approx(
        [value / math.sqrt((1 + 1 + 16 + 16) / 3) for value in (1, -1, 4, -4)], abs=1e-5
    )
    alone = hooked([0, 0], rows[:2], normalize_rewards=False, several=True)
    assert alone == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], abs=1e-5)
    with pytest.raises(ConfigError, match="the rewards of this environment have one"):
        hooked([0, 0], rows[:2])
    assert hooked([0, 0], [None, None], several=True) == [0.0, 0.0]


@pytest.mark.timeout(600)
def test_both_trainers_train_by_the_components_of_our_rewards(tmp_path: Path, ray: None) -> None:
    said = [R, W, HALF, R, f"{R} {LOST}"]
    more = ("reward=tiered", "reward.abstain=0.5", "reward.incorrect=-1")
    wanted = stock([0] * 4, {"correct": [1.0, 0, 0, 1.0], "abstain": [0, 0, 0.5, 0], "incorrect": [0, -1.0, 0, 0]})
    gdpo = {"adv_estimator": {"name": "gdpo"}}
    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: said[count], generations=5, grpo=gdpo, more=more)
    (batch,) = done.batches
    assert [float(one) for one in batch["advantages"][:, 0]] == pytest.approx([*wanted, 0.0], abs=2e-5)
    assert batch["sample_mask"].tolist() == [1.0] * 4 + [0.0]
    metrics = done.metrics["train", 1]
    assert (metrics["reward/correct"], metrics["reward/abstain"]) == pytest.approx((0.5, 0.125))
    drawn = [*[W] * 5, *said]
    again = tmp_path / "dynamic"
    again.mkdir()
    with serving() as server:
        chosen = train(
            again, server.base_url, lambda _, count: drawn[count], tasks=2, prompts=1, generations=5, more=more,
            grpo={**gdpo, "use_dynamic_sampling": True},
        )  # fmt: skip
    assert [float(one) for one in chosen.batches[0]["advantages"][:, 0]] == pytest.approx([*wanted, 0.0], abs=2e-5)
    folder = tmp_path / "async"
    folder.mkdir()
    with serving() as server:
        other = train_async(
            folder, server.base_url, Script([said]), steps=1, prompts=1, generations=5, tasks=4, more=more, grpo=gdpo
        )
    by_reply = dict(zip([*said[:4], said[4]], [*wanted, 0.0], strict=True))
    assert {row.said: row.advantage for row in other.steps[0]} == pytest.approx(by_reply, abs=2e-5)


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    with trainer_process():
        yield
