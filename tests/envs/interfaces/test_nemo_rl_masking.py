"""The arithmetic of taking ungraded samples out, on tensors; needs torch, not NeMo-RL."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gavel.envs.interfaces.nemo_rl.masking import (  # noqa: E402
    GRADED,
    compute_graded_accuracy,
    compute_graded_pass_k,
    take_out_ungraded,
    wrap_estimator_baseline,
    wrap_masked_advantage,
    wrap_masked_baseline,
)


def mean_of_valid(prompts: Any, rewards: Any, valid_mask: Any) -> Any:
    """A baseline as simple as can be."""
    mean = (rewards * valid_mask).sum() / valid_mask.sum()
    return torch.full_like(rewards, float(mean)), torch.ones_like(rewards)


class Estimator:
    """Calls its baseline as NeMo-RL's do: with a mask of ones."""

    baseline = staticmethod(wrap_estimator_baseline(mean_of_valid))

    def compute_advantage(self, prompt_ids: Any, rewards: Any, mask: Any, **_: Any) -> Any:
        base, _ = self.baseline(prompt_ids, rewards, torch.ones_like(rewards))
        return (rewards - base).unsqueeze(-1).expand(mask.shape)


REWARDS, GRADED_ROWS = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])


def advantage(batch: Any, unmarked: str | None = None) -> Any:
    compute = wrap_masked_advantage(Estimator.compute_advantage, lambda: unmarked)
    return compute(Estimator(), None, REWARDS, torch.ones(3, 2), **({} if batch is None else {"repeated_batch": batch}))


def test_an_ungraded_row_is_in_no_baseline_and_has_no_advantage() -> None:
    assert advantage({GRADED: GRADED_ROWS}).tolist() == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]]
    assert advantage({GRADED: torch.ones(3)})[0].tolist() == pytest.approx([2 / 3, 2 / 3])


def test_the_column_of_one_call_is_not_seen_by_the_next() -> None:
    advantage({GRADED: GRADED_ROWS})
    assert advantage({})[2].tolist() == pytest.approx([-1 / 3, -1 / 3])


@pytest.mark.parametrize("batch", [None, {}])
def test_a_batch_that_lost_its_column_is_not_trained_on(batch: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be left out"):
        advantage(batch, "ungraded samples cannot be left out")


def test_what_the_trainer_masks_itself_stays_masked() -> None:
    compute = wrap_masked_baseline(mean_of_valid, lambda _: GRADED_ROWS)
    base, std = compute(None, REWARDS, torch.tensor([0.0, 1.0, 1.0]))
    assert base.tolist() == [0.0, 0.0, 0.0]
    assert std.tolist() == [1.0, 1.0, 0.0]


def test_a_taken_out_row_has_no_reward_and_no_weight_whatever_stood_there() -> None:
    batch = {"total_reward": torch.tensor([1.0, 0.7]), "loss_multiplier": torch.ones(2)}
    before = batch["loss_multiplier"]
    take_out_ungraded(batch, torch.tensor([1.0, 0.0]))
    assert [batch[key].tolist() for key in ("total_reward", "loss_multiplier", GRADED)] == [
        [1.0, 0.0],
        [1.0, 0.0],
        [1.0, 0.0],
    ]
    assert before.tolist() == [1.0, 1.0]  # what others hold is not changed under them


def test_accuracy_and_pass_k_know_only_what_was_graded() -> None:
    rewards, graded = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [True, False, True, True, True, False]
    assert compute_graded_accuracy(rewards, graded) == 0.25
    # The first prompt passed, the second did not, of the third a reply is missing.
    assert compute_graded_pass_k(rewards, graded, 2) == 0.5
    assert compute_graded_pass_k([0.0, 0.0], [True, False], 2) is None
    with pytest.raises(ValueError, match="no sample"):
        compute_graded_accuracy([0.0], [False])
