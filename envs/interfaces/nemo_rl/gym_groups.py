"""Marks a group that NeMo Gym has rolled out, where NeMo-RL makes a batch of it: verdicts beside its samples, its
ungraded ones taken out, its figures over graded samples alone.

NeMo-RL makes that batch in the driver, or in the collector's process, which may lack this package's requirements: see
``stamps``. ``_postprocess_single_nemo_gym_group`` in ``experience/rollouts.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.envs.interfaces.nemo_rl.masking import TOLD, take_out_ungraded
from gavel.envs.interfaces.nemo_rl.stamps import RESULT, UID, UNDRAWN, VERDICT, is_ours, list_rows

GROUP = "_postprocess_single_nemo_gym_group"
_REWARDS = "total_reward"


def wrap_group(original: Callable[..., Any], summarize: Callable[..., Mapping[str, Any]]) -> Callable[..., Any]:
    """Return the function that makes a group's batch, with its marks.

    Args:
        original: NeMo-RL's.
        summarize: NeMo-RL's ``calculate_single_metric``: figures of values, by a prefix.
    """
    import torch  # NeMo-RL's; this module is imported where it is not, too

    signature = inspect.signature(original)

    @functools.wraps(original)
    def make_group(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options).arguments
        batch, rows = bound["input_batch"], bound["nemo_gym_rows"]
        _give_prompts(bound["results"], batch)
        rolled = original(*args, **options)
        told = [_read_told(row, one["full_result"]) for row, one in zip(rows, bound["results"], strict=True)]
        final = rolled.final_batch
        final["extra_env_info"] = [
            {**info, UID: one["uid"]} if is_ours(info) else info for info, one in zip(rows, told, strict=True)
        ]
        final["task_name"] = list(batch["task_name"])
        final[TOLD] = told
        counted = [is_counted(one) for one in told]
        take_out_ungraded(final, torch.tensor([float(one) for one in counted]))
        _correct_figures(rolled.rollout_metrics, final, rows, counted, summarize)
        return rolled

    return make_group


def _give_prompts(results: Sequence[Mapping[str, Any]], batch: Any) -> None:
    """Give samples of which no token was drawn the prompt of their siblings: NeMo-RL's groups are the rows of one
    prompt, and its dynamic sampling would cut others where one is short.
    """
    undrawn = [one["full_result"].pop(UNDRAWN, "false") == "true" for one in results]
    if not any(undrawn):
        return
    names = list_rows(batch)
    known = {
        name: one["message_log"][0]["token_ids"]
        for name, one, lost in zip(names, results, undrawn, strict=True)
        if not lost
    }
    for place, lost in enumerate(undrawn):
        if lost:
            ids = known.get(names[place], batch["message_log"][place][0]["token_ids"])
            for log in (results[place]["message_log"], results[place]["input_message_log"]):
                log[0]["token_ids"] = ids.clone()


def is_counted(told: Mapping[str, Any]) -> bool:
    """Tell whether a sample is graded, or none of ours."""
    verdict = told["verdict"]
    return not told["uid"] or (verdict is not None and verdict["failure"] is None)


def _read_told(row: Mapping[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent told of a sample; a verdict that is not this sample's is none."""
    if not is_ours(row):
        return {"uid": "", "verdict": None, "figures": None}
    verdict, result = (json.loads(full.pop(name, None) or "null") for name in (VERDICT, RESULT))
    uid = str(row[UID])
    if verdict is None or not (verdict["uid"] == uid or str(verdict["uid"]).startswith(f"{uid}r")):
        verdict, result = None, None
    return {
        "uid": uid if verdict is None else verdict["uid"], "verdict": verdict, "figures": None, "result": result
    }  # fmt: skip


def _correct_figures(
    metrics: dict[str, Any],
    final: Any,
    rows: Sequence[Mapping[str, Any]],
    counted: Sequence[bool],
    summarize: Callable[..., Mapping[str, Any]],
) -> None:
    """Put figures of rewards over graded samples in the place of NeMo-RL's, which count placeholders; of none, none."""
    rewards = final[_REWARDS].tolist()
    names = [str(row["agent_ref"]["name"]) for row in rows]
    parts = {_REWARDS: range(len(rows))} | {
        f"{name}/reward": [place for place, one in enumerate(names) if one == name] for name in dict.fromkeys(names)
    }
    for prefix, places in parts.items():
        values = [rewards[place] for place in places if counted[place]]
        for key in [key for key in metrics if key.startswith(f"{prefix}/")]:
            del metrics[key]
        if values:
            metrics |= summarize(values, len(values), prefix)
