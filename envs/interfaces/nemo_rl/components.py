"""GDPO over the components of our rewards: each is compared within its group by itself, over the samples that have it.

An environment of ours gives NeMo-RL one reward; its components come with the verdict of each sample (``TOLD``) and are
put into the batch that the estimator sees. A sample that lacks a component (a rubric that its task does not have,
another environment's) takes no part in that component: it is no 0. An ungraded sample takes part in nothing, NeMo-RL's
last normalisation over the batch included. ``algorithms/advantage_estimator.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.envs.interfaces.nemo_rl.masking import GRADED, TOLD, compare_parts
from gavel.models.errors import ConfigError

PREFIX = "reward/"
"""NeMo-RL's own, of the columns that its estimator takes for components."""
_NONE = f"{PREFIX}none"


def wrap_component_advantage(original: Callable[..., Any], *, several: bool) -> Callable[..., Any]:
    """Return GDPO's ``compute_advantage`` over graded samples and the components that each of them has.

    Args:
        original: the estimator's method; it demands two components.
        several: whether several environments are trained on: a step may then hold samples of a single component.

    Raises:
        ConfigError: when called, no sample has a second component.
    """

    def compute_advantage(
        self: Any, prompt_ids: Any, rewards: Any, mask: Any, repeated_batch: Any, **options: Any
    ) -> Any:
        import torch

        if TOLD not in repeated_batch or GRADED not in repeated_batch:
            raise RuntimeError("this NeMo-RL does not hand the rollout's batch to GDPO's estimator")
        counted = repeated_batch[GRADED] != 0
        found = torch.zeros(mask.shape, dtype=rewards.dtype, device=mask.device)
        if not bool(counted.any()):
            return found
        values, present = read_components(repeated_batch)
        if len(values) < 2:
            if not several:
                raise make_components_error(list(values))
            values[_NONE] = torch.zeros_like(rewards)
            present[_NONE] = torch.zeros_like(rewards)
        kept = {name: column[counted].to(rewards.dtype) for name, column in values.items()}
        with compare_parts({id(kept[name]): column[counted] for name, column in present.items()}):
            found[counted] = original(
                self, prompt_ids[counted], rewards[counted], mask[counted], repeated_batch=kept, **options
            ).to(found.dtype)
        return found

    return compute_advantage


def make_components_error(names: list[str]) -> ConfigError:
    """Return the error of a training of one environment whose rewards have one component; ``names`` says which."""
    return ConfigError(
        "GDPO compares the components of a reward, and the rewards of this environment have one",
        field="grpo.adv_estimator.name",
        found=f"gdpo, and {', '.join(names) or 'no component'}",
        allowed="a reward of several components (tiered; graded, of several rubrics), or several environments",
        remedy="grpo.adv_estimator.name: grpo",
    )


def read_components(batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the components of a batch by column: values and whether a sample has them, each a tensor ``[B]``.

    Samples of other environments than ours have those that NeMo-RL itself has put into the batch.
    """
    import torch

    told: Sequence[Mapping[str, Any]] = batch[TOLD]
    parts = [one["verdict"]["components"] if one["verdict"] is not None else {} for one in told]
    others = torch.tensor([not one["uid"] for one in told])
    own = {f"{PREFIX}{name}" for part in parts for name in part}
    foreign = {name for name in batch if isinstance(name, str) and name.startswith(PREFIX)}
    values, present = {}, {}
    for name in sorted(own | foreign):
        short = name.removeprefix(PREFIX)
        values[name] = torch.tensor([float(part.get(short, 0.0)) for part in parts], dtype=torch.float64)
        present[name] = torch.tensor([float(short in part) for part in parts], dtype=torch.float64)
        if name in foreign:
            values[name][others] = batch[name][others].double()
            present[name][others] = 1.0
    return values, present
