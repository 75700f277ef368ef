"""A group's baseline and spread in float64 and two passes, and the largest advantage that they allow. Pure functions on
tensors.

NeMo-RL's own (``algorithms/utils.py``) takes ``E[x²] − mean²`` in float32. For equal rewards that no binary fraction
has, such as fifteen times 0.3, that is a rounding error instead of 0, and one advantage divided by it outweighs a whole
step (measured: 7748 for 0.7). Where a version computes it without that error, its own function is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IDENTICAL = 1e-6
"""Rewards count as identical where they differ by at most this part of the group's largest amount: a few roundings of
float32, which arithmetic on equal rewards leaves behind. Rewards that really differ, by however little, have their
spread."""
PARAMETERS = ("prompts", "rewards", "valid_mask", "leave_one_out_baseline", "std_rewards")
_SLACK = 1e-3
_ROUNDING = 1e-5

Baseline = Callable[..., tuple[Any, Any]]


def compute_exact_baseline(
    prompts: Any, rewards: Any, valid_mask: Any, leave_one_out_baseline: bool = True, std_rewards: Any = None
) -> tuple[Any, Any]:
    """Return the mean reward of each sample's group and its standard deviation (n - 1), as NeMo-RL's function of the
    same arguments.

    Args:
        prompts: ``[B, tokens]``; rows of equal prompts are a group.
        rewards: ``[B]``.
        valid_mask: ``[B]``, 1 for samples that count, else 0.
        leave_one_out_baseline: each sample is compared with the others alone.
        std_rewards: ``[B]``: the standard deviation is of these instead.

    Returns:
        Two tensors ``[B]`` of the rewards' type. A group with fewer than two valid samples has its rewards as baseline,
        and no spread; the spread of fewer than two samples, or of equal ones, is 0, which NeMo-RL takes for "do not
        normalise".
    """
    import torch

    base, std = rewards.clone(), torch.zeros_like(rewards)
    spread_of = rewards if std_rewards is None else std_rewards
    for rows in iterate_groups(prompts):
        compared = _compare_group(valid_mask[rows], leave_one_out=leave_one_out_baseline)
        if compared is None:
            continue
        base[rows] = _compute_moments(rewards[rows].double(), compared)[0].to(rewards.dtype)
        std[rows] = _compute_moments(spread_of[rows].double(), compared)[1].to(rewards.dtype)
    return base, std


def iterate_groups(prompts: Any) -> Iterator[Any]:
    """Yield the row numbers of each group of equal prompts."""
    import torch

    _, group = torch.unique(prompts, dim=0, return_inverse=True)
    for number in range(int(group.max()) + 1 if len(group) else 0):
        yield (group == number).nonzero().squeeze(-1)


def _compare_group(valid: Any, *, leave_one_out: bool) -> Any:
    """Return the matrix ``[k, k]`` of which samples of a group each is compared with; None where fewer than two are
    valid.
    """
    import torch

    valid = valid.double()
    if float(valid.sum()) <= 1:
        return None
    others = torch.ones(len(valid), len(valid), dtype=torch.float64, device=valid.device)
    return (
        others - torch.eye(len(valid), dtype=torch.float64, device=valid.device) if leave_one_out else others
    ) * valid


def _compute_moments(values: Any, compared: Any) -> tuple[Any, Any]:
    """Return mean and standard deviation of what each sample is compared with."""
    count = compared.sum(1)
    mean = compared @ values / count.clamp(min=1)
    squares = (values.unsqueeze(0) - mean.unsqueeze(1)).square()
    variance = (compared * squares).sum(1) / (count - 1).clamp(min=1)
    return mean, variance.sqrt()


def _compute_range(values: Any, compared: Any) -> Any:
    """Return the difference of the largest and the smallest reward of what each sample is compared with."""
    wide = values.unsqueeze(0).expand_as(compared)
    high = wide.masked_fill(compared == 0, float("-inf")).amax(1)
    low = wide.masked_fill(compared == 0, float("inf")).amin(1)
    return (high - low).clamp(min=0)


@dataclass(frozen=True, slots=True)
class SettledBaseline:
    """``calculate_baseline_and_std_per_prompt`` without rounding errors in its spread.

    ``original`` is NeMo-RL's; it is called where it is exact, and ``compute_exact_baseline`` where it is not. The
    spread of identical rewards, see ``IDENTICAL``, is 0.
    """

    original: Baseline
    chosen: Baseline

    def __call__(
        self,
        prompts: Any,
        rewards: Any,
        valid_mask: Any,
        leave_one_out_baseline: bool = True,
        std_rewards: Any = None,
        **further: Any,
    ) -> tuple[Any, Any]:
        """Return baseline and standard deviation, see ``compute_exact_baseline``; ``further`` is what only a newer
        original knows.
        """
        options = {"leave_one_out_baseline": leave_one_out_baseline, "std_rewards": std_rewards, **further}
        base, std = self.chosen(prompts, rewards, valid_mask, **options)
        std, values = std.clone(), rewards if std_rewards is None else std_rewards
        for rows in iterate_groups(prompts):
            compared = _compare_group(valid_mask[rows], leave_one_out=leave_one_out_baseline)
            if compared is not None:
                alike = _find_alike(values[rows].double(), compared, valid_mask[rows])
                std[rows] = std[rows].masked_fill(alike, 0.0)
        return base, std


def _find_alike(values: Any, compared: Any, valid: Any) -> Any:
    """Tell of each sample whether what it is compared with is one value, see ``IDENTICAL``."""
    return _compute_range(values, compared) <= IDENTICAL * values[valid != 0].abs().max()


def settle_baseline(original: Baseline) -> SettledBaseline:
    """Return NeMo-RL's function with exact spreads; what is settled already stays as it is."""
    if isinstance(original, SettledBaseline):
        return original
    return SettledBaseline(original, original if is_exact(original) else compute_exact_baseline)


def list_unknown_parameters(original: Baseline) -> list[str]:
    """Return a baseline function's parameters that ``compute_exact_baseline`` does not know; none where it is exact
    itself.
    """
    if isinstance(original, SettledBaseline):
        return []
    further = [name for name in inspect.signature(original).parameters if name not in PARAMETERS]
    return further if further and not is_exact(original) else []


def is_exact(original: Baseline) -> bool:
    """Tell whether a baseline function gives what ``compute_exact_baseline`` gives, in groups in which rounding
    shows.
    """
    import torch

    for reward in (0.1, 0.3, 1 / 3, 0.7, 0.9):
        for size in range(2, 17):
            rewards = torch.tensor([1.0, *[reward] * (size - 1)])
            for lost in (0.0, 1.0):
                valid = torch.ones(size)
                valid[-1] = lost
                given = torch.zeros(size, 1), rewards, valid
                for leave_one_out in (True, False):
                    wanted = compute_exact_baseline(*given, leave_one_out_baseline=leave_one_out)
                    found = original(*given, leave_one_out_baseline=leave_one_out)
                    kept = valid != 0
                    if not all(
                        torch.allclose(a[kept], b[kept], atol=_ROUNDING) for a, b in zip(wanted, found, strict=True)
                    ):
                        return False
    return True


def bound_groups(estimator: Any, prompts: Any, rewards: Any, valid: Any, mask: Any) -> Any:  # noqa: ARG001
    """Return ``[B]``: the largest advantage that GRPO's estimator can give each sample, from the range of its group's
    rewards.

    Not normalised it is the range ``R``. Divided by the spread of all ``n`` it is at most ``(n - 1) / √n``; by that of
    the others, whose own range is ``r``, at most ``R √(2 (n - 2)) / r``; where those are equal, nothing is divided.
    """
    import torch

    bound = torch.zeros(len(rewards), dtype=torch.float64)
    for rows in iterate_groups(prompts):
        values, counts = rewards[rows].double(), valid[rows]
        compared = _compare_group(counts, leave_one_out=estimator.use_leave_one_out_baseline)
        if compared is None:
            continue
        count = float(counts.sum())
        whole = values[counts != 0].max() - values[counts != 0].min()
        limit = torch.full_like(values, float(whole))
        if estimator.normalize_rewards:
            divided = ~_find_alike(values, compared, counts)
            if estimator.use_leave_one_out_baseline:
                most = whole * (2 * max(count - 2, 1)) ** 0.5 / _compute_range(values, compared).clamp(min=1e-300)
            else:
                most = torch.full_like(values, (count - 1) / count**0.5)
            limit[divided] = most[divided]
        bound[rows.cpu()] = limit.cpu()
    return bound


def bound_batch(estimator: Any, prompts: Any, rewards: Any, valid: Any, mask: Any) -> Any:  # noqa: ARG001
    """Return ``[B]``: the largest advantage that an estimator can give which normalises over all weighed tokens of a
    batch.
    """
    import torch

    weights = mask[mask > 0].double()
    most = float((weights.sum() / weights.min()).sqrt()) if len(weights) else 0.0
    return torch.full((len(rewards),), most, dtype=torch.float64)


def bound_components(estimator: Any, prompts: Any, rewards: Any, valid: Any, mask: Any) -> Any:  # noqa: ARG001
    """Return ``[B]``: the largest advantage that GDPO's estimator can give, which normalises over the ``n`` valid
    samples of a batch: ``(n - 1) / √n``.
    """
    import torch

    count = max(float(valid.sum()), 1.0)
    return torch.full((len(rewards),), (count - 1) / count**0.5, dtype=torch.float64)


BOUNDS: Mapping[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "GRPOAdvantageEstimator": bound_groups,
    "ReinforcePlusPlusAdvantageEstimator": bound_batch,
    "GDPOAdvantageEstimator": bound_components,
}
"""By estimator: of its instance, prompts ``[B, tokens]``, rewards, validity ``[B]`` and token weights ``[B,
tokens]``.
"""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """An advantage beyond its bound: of the batch's sample ``row``."""

    row: int
    value: float
    bound: float


def find_exceeded(advantages: Any, mask: Any, bound: Any) -> tuple[float, float, Exceeded | None]:
    """Compare advantages with their bounds.

    Args:
        advantages: ``[B, tokens]``.
        mask: ``[B, tokens]``: each token's weight; tokens without one are not trained on.
        bound: ``[B]``.

    Returns:
        The largest advantage by amount, the largest bound, and the worst advantage beyond its bound, if any is.
    """
    sizes = advantages.detach().double().abs().masked_fill(mask == 0, 0.0).amax(1).cpu()
    over = ~(sizes <= bound * (1 + _SLACK) + _ROUNDING)  # so that a NaN is found, too
    largest, allowed = float(sizes.max()), float(bound.max())
    if not bool(over.any()):
        return largest, allowed, None
    rows = over.nonzero().squeeze(-1)
    row = int(rows[sizes[rows].nan_to_num(float("inf")).argmax()])
    return largest, allowed, Exceeded(row, float(sizes[row]), float(bound[row]))
