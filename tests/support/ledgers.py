"""Ledgers of trainings made by hand: rewards by step and task, in the form that trainers leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.types import Check, Digests, Outcome, Result, Reward, Timing, Transcript
from gavel.launch.runs.training_plan import PLAN
from gavel.models.failures import Failure, FailureKind

Rewards = Mapping[int, Mapping[str, Sequence[float | None]]]
"""step -> task -> the rewards of its rollouts, None for one that was not graded."""


def write_ledger(run: Path, rewards: Rewards, *, start: str = "s1") -> None:
    """Append to the ledger of a run what one start of it recorded; a check passes where the reward is above 0."""
    ledger, steps, number = Ledger(run / "ledger", "echo"), StepLedger(run / "ledger"), 0
    for step, tasks in rewards.items():
        weights = {}
        for task, values in tasks.items():
            for rollout, value in enumerate(values):
                uid = f"{start}-{number:09x}"
                ledger.add(uid, 0, "train", result(task, rollout, value))
                weights[uid], number = float(value is not None), number + 1
        steps.add(step, "train", weights)
    ledger.close()
    steps.close()


def result(task: str, rollout: int, value: float | None) -> Result:
    """Return a result with one check and one component."""
    failure = Failure(FailureKind.TRANSPORT_UNREACHABLE, "judge", "nobody is there") if value is None else None
    checks = () if value is None else (Check("good", value > 0, float(value > 0), ""),)
    return Result(
        task_id=task,
        task_digest=f"sha256:{task}",
        rollout_index=rollout,
        attempt=1,
        status="judge_error" if value is None else "graded",
        transcript=Transcript(()),
        outcome=Outcome("" if value is None else "good" if value > 0 else "bad", checks=checks, failure=failure),
        reward=None if value is None else Reward(value, {"good": value}),
        receipts=(),
        timing=Timing(0.0, 0.0, 0.0, 0.0),
        digests=Digests("", {}),
        metadata={"persona": task.partition("/")[0]},
        fallback_reward=0.0 if value is None else None,
    )


def training_run(run: Path, rewards: Rewards, *, seed: int = 1, reward: str = "mean") -> Path:
    """Make what `gavel compare` reads of a training run."""
    write_ledger(run, rewards)
    (run / PLAN).write_text("{}")
    (run / "config.yaml").write_text(yaml.safe_dump({"seed": seed, "reward": {"name": reward}}))
    return run
