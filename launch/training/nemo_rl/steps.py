"""How many steps a config of NeMo-RL asks for, and how many prompts each of them draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gavel.envs.interfaces.nemo_rl.prompts import list_gavel_entries
from gavel.envs.interfaces.nemo_rl.tasks import load_tasks
from gavel.launch.training.nemo_rl.config import NemoRlKind, settle_config
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.launch.training.trainer import Planned, read_section
from gavel.models.errors import GavelError


def plan_steps(config: Mapping[str, Any]) -> Planned:
    """Return the steps that a trainer's config asks for.

    The number is exact where neither dynamic sampling nor an early stop by a validation metric can end a training
    before it. A config with values that cannot be read, which the preflight refuses, has none.
    """
    kind = settle_config(config)
    traced = kind.keeps_steps or bool(read_section(config, "checkpointing").get("enabled"))
    return replace(_bound_steps(config, kind), traced=traced)


def _bound_steps(config: Mapping[str, Any], kind: NemoRlKind) -> Planned:
    if find_wrong_values(config):
        return Planned(None, exact=False)
    grpo, data = read_section(config, "grpo"), read_section(config, "data")
    bound = int(grpo.get("max_num_steps", 1_000_000))
    exact = not grpo.get("use_dynamic_sampling") and grpo.get("stop_at_validation_metric") is None
    epochs = grpo.get("max_num_epochs", 1)
    if kind.overlapping:
        return Planned(bound, exact)  # it reads no epochs, and fails where its one pass over the tasks ends too soon
    if data.get("use_multiple_dataloader") or epochs is None:
        return Planned(bound, exact)  # the loaders begin again without end
    rows = count_rows(config)
    if rows is None:
        return Planned(bound, exact=False)
    per_epoch = rows // count_prompts_per_batch(grpo)
    most = per_epoch * int(epochs)
    # SingleController skips prompts that fail, so that its epochs may hold fewer steps.
    exact = exact and (kind.keeps_steps or bound < most)
    return Planned(min(bound, most), exact, per_epoch, int(epochs))


def count_prompts_per_batch(grpo: Mapping[str, Any]) -> int:
    """Return the prompts of one batch of the loader; dynamic sampling draws more than a step needs."""
    prompts = int(grpo.get("num_prompts_per_step", 32))
    return max(
        int(prompts * float(grpo.get("batch_multiplier", 1))) if grpo.get("use_dynamic_sampling") else prompts, 1
    )


def count_rows(config: Mapping[str, Any]) -> int | None:
    """Return the rows of ``data.train``; None where a data set is not one of ours or cannot be read."""
    data = read_section(config, "data")
    stated = data.get("train")
    entries = [entry for key, entry in list_gavel_entries(data) if key.startswith("data.train")]
    if not entries or len(entries) != (len(stated) if isinstance(stated, list) else 1):
        return None
    try:
        return sum(
            len(load_tasks(one["data_path"], one["env"], binding=one.get("binding"), limit=one.get("limit")))
            for one in entries
        )
    except (GavelError, KeyError):
        return None  # a finding of the preflight
