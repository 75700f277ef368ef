"""Ungraded samples out of NeMo-RL's arithmetic: loss weight, group baseline, advantages, validation accuracy. Pure
functions.

``algorithms/utils.py`` and ``algorithms/advantage_estimator.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909: its baseline takes a mask of valid samples, and every caller gives it ones.
This gives it the graded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gavel.envs.interfaces.nemo_rl.baseline import PARAMETERS, Baseline
from gavel.envs.interfaces.nemo_rl.stamps import PREFIX

GRADED = "gavel_graded"
"""The batch's column: 1.0 where a sample is graded (or not ours), else 0.0."""
TOLD = "gavel_told"
"""The column of what an actor told of each sample, as plain data: ``uid`` (empty where it is not ours), ``verdict``
(None where there is none) and, in one row of each environment of a group, ``figures``: the ``env``, its ``graded``
samples and its own ``metrics`` of them."""
REPORT_SECONDS = 120.0
"""An actor that does not tell its verdicts within this time is taken to have none."""

# A context variable, not a parameter: the estimator calls the baseline itself and hands nothing through to it.
_CURRENT: ContextVar[Any] = ContextVar("gavel_graded", default=None)
_PARTS: ContextVar[Mapping[int, Any]] = ContextVar("gavel_parts", default={})  # noqa: B039 - nothing writes into it


def take_out_ungraded(batch: Any, graded: Any) -> None:
    """Mark a rollout's batch: ungraded samples get reward 0.0 and loss weight 0.

    Args:
        batch: with ``total_reward`` and ``loss_multiplier``, each ``[B]``.
        graded: float tensor ``[B]``, 1.0 or 0.0.
    """
    lost = graded == 0
    for key in ("total_reward", "loss_multiplier"):
        values = batch[key].clone()
        values[lost] = 0
        batch[key] = values
    batch[GRADED] = graded


def wrap_masked_baseline(original: Baseline, graded_of: Callable[[Any], Any]) -> Baseline:
    """Return ``calculate_baseline_and_std_per_prompt`` over graded samples alone.

    Args:
        original: NeMo-RL's. What it masks itself stays masked, so a version that does this already gives the same.
        graded_of: gives the graded column for ``rewards``, None where there is none.
    """

    def compute_masked(prompts: Any, rewards: Any, valid_mask: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
        graded = graded_of(rewards)
        if graded is None or bool((graded != 0).all()):
            return original(prompts, rewards, valid_mask, *args, **options)
        graded = graded.to(device=rewards.device, dtype=valid_mask.dtype)
        base, std = original(prompts, rewards, valid_mask * graded, *args, **options)
        base, std, lost = base.clone(), std.clone(), graded == 0
        base[lost] = rewards[lost]  # no advantage
        std[lost] = 0
        return base, std

    return compute_masked


def wrap_whole_groups(original: Baseline, graded_of: Callable[[Any], Any]) -> Baseline:
    """Return ``wrap_masked_baseline`` for the trainer itself, whose dynamic sampling keeps the samples with a spread
    other than 0.

    Every sample gets the spread of its group's graded ones, the ungraded too, so that a group is kept or dropped as a
    whole: left out one by one, the slice at a batch's size would cut other groups. (The spread of the others,
    leave-one-out, is 0 for the one odd reward of a group.) Advantages are the estimator's, which computes its own.
    """

    def compute_whole(prompts: Any, rewards: Any, valid_mask: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
        options = {**dict(zip(PARAMETERS[3:], args, strict=False)), **options}
        graded = graded_of(rewards)
        column = None if graded is None else graded.to(device=rewards.device, dtype=valid_mask.dtype)
        base, _ = wrap_masked_baseline(original, lambda _: column)(prompts, rewards, valid_mask, **options)
        counted = valid_mask if column is None else valid_mask * column
        return base, original(prompts, rewards, counted, **{**options, "leave_one_out_baseline": False})[1]

    return compute_whole


def list_environments(batch: Any) -> list[str]:
    """Return the environment of each row of a batch, where it is one of ours; else an empty text."""
    return [name.partition("/")[0] if (name := str(one)).startswith(PREFIX) else "" for one in batch["task_name"]]


def separate_prompts(prompts: Any, environments: Sequence[str]) -> Any:
    """Return prompts ``[B, tokens]`` by which the groups of different environments differ, whatever they ask: what is
    graded by different things is never compared.
    """
    import torch

    numbers = {name: number for number, name in enumerate(dict.fromkeys(environments))}
    if len(numbers) < 2:
        return prompts
    column = torch.tensor([numbers[name] for name in environments], dtype=prompts.dtype, device=prompts.device)
    return torch.cat([prompts, column.unsqueeze(-1)], dim=1)


def wrap_separate_groups(original: Baseline, environments: Callable[[int], Sequence[str]]) -> Baseline:
    """Return the trainer's own baseline over groups of one environment each.

    Args:
        original: takes prompts, and what else there is.
        environments: gives those of the newest rollout's rows, if it has so many; else none.
    """

    def compute_separate(prompts: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
        return original(separate_prompts(prompts, environments(len(prompts))), *args, **options)

    return compute_separate


def wrap_estimator_baseline(original: Baseline) -> Baseline:
    """Return the baseline that the advantage estimators are to call; sees the column of the call under way."""
    return wrap_masked_baseline(original, lambda rewards: _PARTS.get().get(id(rewards), _CURRENT.get()))


@contextmanager
def compare_parts(present: Mapping[int, Any]) -> Iterator[None]:
    """Let the baseline of a component, known by its tensor's ``id``, count those samples alone that have it."""
    token = _PARTS.set(present)
    try:
        yield
    finally:
        _PARTS.reset(token)


def find_graded(options: Mapping[str, Any]) -> Any:
    """Return the graded column of the batch that an estimator is given as ``repeated_batch``; None where it has
    none.
    """
    batch = options.get("repeated_batch")
    return batch[GRADED] if batch is not None and GRADED in batch else None


def wrap_masked_advantage(original: Callable[..., Any], unmarked: Callable[[], str | None]) -> Callable[..., Any]:
    """Return an estimator's ``compute_advantage`` that leaves ungraded samples out, and gives them no advantage.

    Args:
        original: the estimator's method.
        unmarked: says why a batch without the column must not be trained on, None if it may.
    """

    def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, *args: Any, **options: Any) -> Any:
        graded = find_graded(options)
        if graded is None:
            if (problem := unmarked()) is not None:
                raise RuntimeError(problem)
            return original(self, prompt_ids, rewards, mask, *args, **options)
        token = _CURRENT.set(graded)
        try:
            advantages = original(self, prompt_ids, rewards, mask, *args, **options)
        finally:
            _CURRENT.reset(token)
        lost = (graded == 0).to(advantages.device)
        return advantages.masked_fill(lost.unsqueeze(-1), 0.0) if bool(lost.any()) else advantages

    return compute_advantage


def compute_graded_accuracy(rewards: Sequence[float], graded: Sequence[bool]) -> float:
    """Return the mean reward of graded samples.

    Raises:
        ValueError: none is graded.
    """
    kept = [reward for reward, counts in zip(rewards, graded, strict=True) if counts]
    if not kept:
        raise ValueError("no sample of the validation was graded")
    return sum(kept) / len(kept)


def compute_graded_pass_k(rewards: Sequence[float], graded: Sequence[bool], k: int) -> float | None:
    """Return the share of prompts with a passing reply, over prompts of which that is known: one passed, or all were
    graded.

    None where that is known of no prompt.
    """
    known = []
    for start in range(0, len(rewards), k):
        passed = any(
            reward > 0 and counts
            for reward, counts in zip(rewards[start : start + k], graded[start : start + k], strict=True)
        )
        if passed or all(graded[start : start + k]):
            known.append(passed)
    return sum(known) / len(known) if known else None
