"""Baselines and spreads of groups against exact fractions, and the bound that no advantage may pass; needs torch, not
NeMo-RL.

With ``NEMO_RL_ROOT`` the same table goes through NeMo-RL's own estimators, in ``test_nemo_rl_exactness.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.envs.interfaces.nemo_rl_exact import TENTHS, THIRDS, groups, wanted_advantages  # noqa: E402

from gavel.envs.interfaces.nemo_rl import baseline as exact  # noqa: E402


class GRPO:
    """NeMo-RL's GRPO estimator as it stands at 7ea279ab, over a baseline of ours."""

    def __init__(self, baseline: Any, *, leave_one_out: bool, normalize: bool) -> None:
        self.use_leave_one_out_baseline, self.normalize_rewards, self._baseline = leave_one_out, normalize, baseline

    def advantages(self, rewards: Any, valid: Any) -> Any:
        prompts = torch.zeros(len(rewards), 1)
        base, std = self._baseline(prompts, rewards, valid, leave_one_out_baseline=self.use_leave_one_out_baseline)
        found = rewards - base
        if self.normalize_rewards:
            found = torch.where(std > 0, found / (std + 1e-6), found)
        return found * valid


def upstream(
    prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, std_rewards: Any = None
) -> Any:
    """E[x²] - mean² in float32, restated: the shape that explodes."""
    own = 1 - torch.eye(len(rewards)) if leave_one_out_baseline else torch.ones(len(rewards), len(rewards))
    count = valid_mask.sum() - int(leave_one_out_baseline)
    if valid_mask.sum() <= 1:
        return rewards.clone(), torch.zeros_like(rewards)
    mean = own @ (rewards * valid_mask) / count
    square = own @ (rewards**2 * valid_mask) / count
    return mean, ((square - mean**2) * (count / (count - 1))).sqrt().nan_to_num(0)


def two_pass(
    prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, std_rewards: Any = None
) -> Any:
    """A later shape of NeMo-RL's: exact by itself, over the only group there is."""
    own = 1 - torch.eye(len(rewards)) if leave_one_out_baseline else torch.ones(len(rewards), len(rewards))
    own = own.double() * valid_mask.double()
    if valid_mask.sum() <= 1:
        return rewards.clone(), torch.zeros_like(rewards)
    count = own.sum(1)
    mean = own @ rewards.double() / count
    square = (own * (rewards.double()[None] - mean[:, None]) ** 2).sum(1) / (count - 1).clamp(min=1)
    return mean.float(), square.sqrt().float()


@pytest.mark.parametrize("normalize", [True, False], ids=["normalised", "plain"])
@pytest.mark.parametrize("leave_one_out", [True, False], ids=["leave-one-out", "whole"])
@pytest.mark.parametrize(
    ("original", "sizes"), [(upstream, range(2, 33)), (two_pass, (2, 3, 8, 15, 16))], ids=["replaced", "kept"]
)
def test_advantages_are_those_of_exact_fractions(
    original: Any, sizes: Sequence[int], leave_one_out: bool, normalize: bool
) -> None:
    estimator = GRPO(exact.settle_baseline(original), leave_one_out=leave_one_out, normalize=normalize)
    for rewards, lost in groups(sizes):
        given_, valid = torch.tensor([float(one) for one in rewards]), torch.ones(len(rewards))
        if lost is not None:
            given_[lost], valid[lost] = 0.0, 0.0
        wanted = wanted_advantages(rewards, lost, leave_one_out=leave_one_out, normalize=normalize)
        found = estimator.advantages(given_, valid)
        assert found.tolist() == pytest.approx(wanted, abs=1e-5), (rewards, lost)
        bound = exact.bound_groups(estimator, torch.zeros(len(rewards), 1), given_, valid, None)
        assert exact.find_exceeded(found.unsqueeze(-1), torch.ones(len(rewards), 1), bound)[2] is None, (rewards, lost)


def test_the_spread_of_equal_rewards_is_nothing_whatever_their_value() -> None:
    for size in range(2, 33):
        for value in (*TENTHS, *THIRDS, Fraction(1, 7), Fraction(123, 1000), Fraction(-3, 10)):
            rewards = torch.full((size,), float(value))
            base, std = exact.compute_exact_baseline(torch.zeros(size, 1), rewards, torch.ones(size))
            assert std.tolist() == [0.0] * size, (size, value)
            assert base.tolist() == rewards.tolist(), (size, value)


def test_a_spike_of_a_trainer_is_one_group_with_one_odd_reward() -> None:
    # Which sizes and rewards explode depends on how a machine adds.
    spikes = 0
    for size in range(3, 33):
        for value in (0.1, 0.3, 1 / 3, 0.7, 0.9):
            rewards = torch.tensor([1.0] + [value] * (size - 1))
            spikes += (
                abs(float(GRPO(upstream, leave_one_out=True, normalize=True).advantages(rewards, torch.ones(size))[0]))
                > 100
            )
            settled = GRPO(exact.settle_baseline(upstream), leave_one_out=True, normalize=True)
            assert float(settled.advantages(rewards, torch.ones(size))[0]) == pytest.approx(1 - value, abs=1e-6)
    assert spikes


def test_groups_of_one_batch_are_apart_in_whatever_order_they_stand() -> None:
    prompts = torch.tensor([[1, 2], [3, 0], [1, 2], [3, 0], [1, 2], [3, 0]])
    rewards = torch.tensor([1.0, 0.3, 0.0, 0.3, 0.0, 0.3])
    base, std = exact.compute_exact_baseline(prompts, rewards, torch.ones(6), leave_one_out_baseline=False)
    assert base.tolist() == pytest.approx([1 / 3, 0.3, 1 / 3, 0.3, 1 / 3, 0.3])
    assert std.tolist() == pytest.approx([3**-0.5, 0.0] * 3)


def test_the_spread_may_be_of_other_rewards_than_the_baseline() -> None:
    raw, shaped = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0.9, 0.1, 0.8, 0.0])
    base, std = exact.compute_exact_baseline(torch.zeros(4, 1), shaped, torch.ones(4), False, raw)
    assert base.tolist() == pytest.approx([0.45] * 4)
    assert std.tolist() == pytest.approx([(1 / 3) ** 0.5] * 4)


def test_an_original_that_is_exact_is_used_and_one_that_is_not_is_replaced() -> None:
    assert exact.settle_baseline(two_pass).chosen is two_pass
    assert exact.settle_baseline(upstream).chosen is exact.compute_exact_baseline
    settled = exact.settle_baseline(upstream)
    assert exact.settle_baseline(settled) is settled  # hooks that are installed twice


def test_an_original_with_a_parameter_of_its_own_is_used_only_where_it_is_exact() -> None:
    def newer(
        prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, *, unit: int = 1, **more: Any
    ) -> Any:
        return two_pass(prompts, rewards, valid_mask, leave_one_out_baseline)

    def unknown(
        prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, *, unit: int = 1
    ) -> Any:
        return upstream(prompts, rewards, valid_mask, leave_one_out_baseline)

    assert exact.list_unknown_parameters(newer) == []
    assert exact.list_unknown_parameters(unknown) == ["unit"]


@pytest.mark.parametrize(
    "rewards",
    [
        [1.5, 0.5, 0.5004],
        [1.0, *[0.3] * 14, 0.3001],
        [1.0, *[0.2999 + 0.00001 * step for step in range(15)]],
        [-1.0, 0.0, -1 / 4096, -2 / 4096],  # a penalty by tokens
        [1000.0, -0.25, -0.5, 0.0],
        [-5.0, -4.999, -4.998, 12.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("original", [upstream, two_pass], ids=["replaced", "kept"])
def test_rewards_that_really_differ_have_their_spread_however_small_it_is(original: Any, rewards: list[float]) -> None:
    estimator = GRPO(exact.settle_baseline(original), leave_one_out=True, normalize=True)
    given_, valid = torch.tensor(rewards, dtype=torch.float64), torch.ones(len(rewards))
    wanted = wanted_advantages([Fraction(one) for one in given_.tolist()], None, leave_one_out=True, normalize=True)
    found = estimator.advantages(given_, valid)
    assert found.tolist() == pytest.approx(wanted, rel=1e-5)
    bound = exact.bound_groups(estimator, torch.zeros(len(rewards), 1), given_, valid, None)
    assert exact.find_exceeded(found.unsqueeze(-1), torch.ones(len(rewards), 1), bound)[2] is None


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6, -1.0])
def test_rewards_that_differ_by_their_rounding_alone_have_no_spread(scale: float) -> None:
    others = [0.3, 0.1 + 0.2, 1 - 0.7, 0.9 / 3, 0.3000001] * 3
    rewards = torch.tensor([1.0, *others]) * scale
    found = GRPO(exact.settle_baseline(upstream), leave_one_out=True, normalize=True).advantages(
        rewards, torch.ones(16)
    )
    assert float(found[0]) == pytest.approx(0.7 * scale, rel=1e-5)


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=32), st.booleans(), st.booleans(), st.integers(0, 31))
@settings(max_examples=300, deadline=None)
def test_no_exact_advantage_passes_its_bound(
    rewards: list[float], leave_one_out: bool, normalize: bool, lost: int
) -> None:
    given_, valid = torch.tensor(rewards), torch.ones(len(rewards))
    valid[lost % len(rewards)] = float(lost >= len(rewards))
    estimator = GRPO(exact.settle_baseline(upstream), leave_one_out=leave_one_out, normalize=normalize)
    found = estimator.advantages(given_, valid).unsqueeze(-1)
    bound = exact.bound_groups(estimator, torch.zeros(len(rewards), 1), given_, valid, None)
    assert exact.find_exceeded(found, torch.ones(len(rewards), 1), bound)[2] is None
    assert bool(bound.isfinite().all())


def test_an_advantage_beyond_its_bound_is_found_with_its_row() -> None:
    advantages, mask = (
        torch.tensor([[0.1, 0.1], [9.0, 0.0], [5.0, 7748.0]]),
        torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]),
    )
    largest, allowed, worst = exact.find_exceeded(advantages, mask, torch.tensor([1.0, 9.0, 2.0], dtype=torch.float64))
    assert (largest, allowed) == (9.0, 9.0)
    assert worst == exact.Exceeded(2, 5.0, 2.0)
    _, _, worst = exact.find_exceeded(
        torch.tensor([[float("nan")]]), torch.ones(1, 1), torch.ones(1, dtype=torch.float64)
    )
    assert worst is not None
    assert worst.row == 0


def test_the_table_holds_every_size_and_shape() -> None:
    sizes = {len(rewards) for rewards, _ in groups()}
    assert sizes == set(range(2, 33))


def test_the_advantages_of_the_table_are_those_by_hand() -> None:
    odd = [Fraction(1), *[Fraction(3, 10)] * 3]
    assert wanted_advantages(odd, None, leave_one_out=True, normalize=True)[0] == pytest.approx(0.7)
    # The others of a 0.3 are 1, 0.3 and 0.3: their mean 8/15, their variance 49/300.
    assert wanted_advantages(odd, None, leave_one_out=True, normalize=True)[1] == pytest.approx(
        -7 / 30 / (49 / 300) ** 0.5, abs=1e-5
    )
    assert wanted_advantages(odd, 3, leave_one_out=False, normalize=False) == pytest.approx(
        [7 / 15, -7 / 30, -7 / 30, 0.0]
    )
