"""Shapes that NeMo-RL's contract takes in other versions, on small doubles: further fields, masks of its own, exact
spreads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gavel.envs.interfaces.nemo_rl import returned  # noqa: E402
from gavel.envs.interfaces.nemo_rl.baseline import settle_baseline  # noqa: E402
from gavel.envs.interfaces.nemo_rl.bounds import AdvantageOutOfBounds, wrap_bounded_advantage  # noqa: E402
from gavel.envs.interfaces.nemo_rl.masking import GRADED, wrap_estimator_baseline, wrap_masked_advantage  # noqa: E402


class Six(NamedTuple):
    observations: Any
    metadata: Any
    next_stop_strings: Any
    rewards: Any
    terminateds: Any
    answers: Any


class Masked(NamedTuple):
    observations: Any
    metadata: Any
    next_stop_strings: Any
    rewards: Any
    terminateds: Any
    answers: Any
    mask_sample: Any


class Defaulted(NamedTuple):
    observations: Any
    metadata: Any
    next_stop_strings: Any
    rewards: Any
    terminateds: Any
    answers: Any
    new_thing: Any = None


class Unknown(NamedTuple):
    observations: Any
    metadata: Any
    next_stop_strings: Any
    rewards: Any
    terminateds: Any
    answers: Any
    new_thing: Any


class Reordered(NamedTuple):
    metadata: Any
    observations: Any
    next_stop_strings: Any
    rewards: Any
    terminateds: Any
    answers: Any


@pytest.mark.parametrize(
    ("shape", "fits"), [(Six, True), (Masked, True), (Defaulted, True), (Unknown, False), (Reordered, False)]
)
def test_a_further_field_fits_where_it_is_known_or_has_a_default(shape: Any, fits: bool) -> None:
    assert (returned.list_unknown_fields(shape) == []) is fits


def test_a_mask_of_nemo_rls_own_is_filled_with_what_was_not_graded() -> None:
    values, graded = (1, 2, 3, 4, 5, 6), torch.tensor([True, False, True])
    assert returned.fill_fields(None, values, graded) == values
    assert returned.fill_fields(Six, values, graded) == values
    made = returned.fill_fields(Masked, values, graded)
    assert made[:6] == values
    assert made[6].tolist() == [False, True, False]
    assert returned.fill_fields(Defaulted, values, graded) == (*values, None)


def baseline(
    prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, std_rewards: Any = None
) -> Any:
    """E[x²] - mean² in float32 over one group."""
    own = (
        1 - torch.eye(len(rewards)).to(rewards.dtype)
        if leave_one_out_baseline
        else torch.ones(len(rewards), len(rewards)).to(rewards)
    )
    count = valid_mask.sum() - int(leave_one_out_baseline)
    mean, square = own @ (rewards * valid_mask) / count, own @ (rewards**2 * valid_mask) / count
    return mean, ((square - mean**2) * (count / (count - 1))).sqrt().nan_to_num(0)


class GRPOAdvantageEstimator:
    """An estimator that is told which samples are valid, and reads the baseline of its module."""

    use_leave_one_out_baseline = normalize_rewards = True
    baseline = staticmethod(wrap_estimator_baseline(settle_baseline(baseline)))

    def compute_advantage(self, prompt_ids: Any, rewards: Any, mask: Any, valid_mask: Any = None, **_: Any) -> Any:
        valid = torch.ones_like(rewards) if valid_mask is None else valid_mask.to(rewards.dtype)
        base, std = self.baseline(prompt_ids, rewards, valid, leave_one_out_baseline=self.use_leave_one_out_baseline)
        found = rewards - base
        return torch.where(std > 0, found / (std + 1e-6), found).unsqueeze(-1).expand(mask.shape)


def compute(*args: Any, **options: Any) -> list[float]:
    method = wrap_bounded_advantage(
        wrap_masked_advantage(GRPOAdvantageEstimator.compute_advantage, lambda: None), lambda: 7, lambda *_: None
    )
    return [round(float(one), 3) for one in method(GRPOAdvantageEstimator(), *args, **options)[:, 0]]


REWARDS = torch.tensor([1.0, 1.0, 0.0, 0.0])
PROMPTS, MASK = torch.zeros(4, 1), torch.ones(4, 1)


def test_an_estimator_with_a_valid_mask_leaves_out_what_either_of_us_leaves_out() -> None:
    graded = {GRADED: torch.tensor([1.0, 1.0, 1.0, 0.0])}
    exact = [0.707, 0.707, -1.0, 0.0]
    assert compute(PROMPTS, REWARDS, MASK, repeated_batch=graded) == exact
    assert compute(PROMPTS, REWARDS, MASK, repeated_batch=graded, valid_mask=torch.ones(4)) == exact
    assert (
        compute(PROMPTS, REWARDS, MASK, repeated_batch=graded, valid_mask=torch.tensor([1.0, 1.0, 1.0, 0.0])) == exact
    )
    assert (
        compute(PROMPTS, REWARDS, MASK, torch.tensor([1.0, 1.0, 1.0, 0.0]), repeated_batch=graded) == exact
    )  # by position


def test_arithmetic_that_explodes_is_refused_with_step_group_value_and_bound() -> None:
    class Exploding(GRPOAdvantageEstimator):
        def compute_advantage(self, *args: Any, **options: Any) -> Any:
            return GRPOAdvantageEstimator.compute_advantage(self, *args, **options) * 7748

    method = wrap_bounded_advantage(Exploding.compute_advantage, lambda: 7, lambda *_: None)
    with pytest.raises(AdvantageOutOfBounds, match="step 7: a sample of the group of row 0") as failed:
        method(Exploding(), PROMPTS, REWARDS, MASK)
    assert failed.value.step == 7
    assert failed.value.bound == pytest.approx(2.0)
    assert failed.value.value > 1000
