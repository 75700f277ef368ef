"""NeMo-RL's own ``async_grpo_train`` from the YAML we emit: both of its actors, replay buffer and checkpoints are real,
the policy learns nothing; needs ``NEMO_RL_ROOT``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_exact import wanted_advantages
from tests.envs.interfaces.nemo_rl_support import ROOT, make_run, overrides, write_tasks
from tests.envs.interfaces.nemo_rl_train import render_any

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.async_driver import AsyncDriver
from gavel.envs.interfaces.nemo_rl.collector_hooks import install_async_training
from gavel.envs.interfaces.nemo_rl.ledger import StepLedger

_NUMBER = re.compile(r"kilometre ([0-9]+) of")


class Script:
    """Replies by a task's number: the rollouts of one task say one line each, and ``!`` is an error of the engine. It
    travels into the collector.
    """

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        self.lines = [list(one) for one in lines]
        self.said: dict[int, Iterator[int]] = defaultdict(count)

    def __call__(self, prompt: str, _: int) -> str:
        number = read_number(prompt)
        lines = self.lines[number % len(self.lines)]
        said = lines[next(self.said[number]) % len(lines)]
        if said == "!":
            raise RuntimeError("the engine has failed")
        return said


def read_number(prompt: str) -> int:
    """The number of the task whose prompt a text holds."""
    found = _NUMBER.search(prompt)
    return int(found[1]) if found is not None else 0


@dataclass(frozen=True)
class AsyncRow:
    """One sample that was trained on: its task's number, what the policy said, its advantage and its weight."""

    task: int
    said: str
    advantage: float
    weight: float


@dataclass
class AsyncTrained:
    """What an asynchronous training left behind: the rows of each step, its metrics by prefix and step, its folder."""

    steps: list[list[AsyncRow]]
    metrics: dict[tuple[str, int], dict[str, Any]]
    folder: Path
    tokens: list[Any] = field(default_factory=list)


@contextmanager
def hooked_async(driver: AsyncDriver) -> Iterator[None]:
    """Install the hooks of an asynchronous training and take them out again; both actors run in this interpreter."""
    import nemo_rl.algorithms.async_utils as package
    import nemo_rl.algorithms.grpo as grpo
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES

    for name in ("ReplayBuffer", "AsyncTrajectoryCollector"):
        ACTOR_ENVIRONMENT_REGISTRY[f"nemo_rl.algorithms.async_utils.{name}"] = PY_EXECUTABLES.SYSTEM
    kept = (package.AsyncTrajectoryCollector, grpo.async_grpo_train, grpo.refit_policy_generation)
    grpo.refit_policy_generation = lambda *args, **options: {}
    try:
        with harness.hooked(driver, install_async_training):
            yield
    finally:
        package.AsyncTrajectoryCollector, grpo.async_grpo_train, grpo.refit_policy_generation = kept


def train_async(
    tmp_path: Path,
    url: str,
    script: Script,
    *,
    steps: int,
    prompts: int,
    generations: int = 4,
    tasks: int,
    age: int = 1,
    validation: int = 0,
    failure: FailurePolicy | None = None,
    more: Sequence[str] = (),
    checkpoints: bool = False,
    words: Sequence[str] = (),
    **changes: Any,
) -> AsyncTrained:
    """Train for ``steps`` in all; where ``tmp_path`` holds checkpoints of an earlier call, go on from the newest.
    ``words`` compose a training in several environments.
    """
    import nemo_rl.utils.memory_tracker as memory

    memory.memory_summary = lambda **_: ""  # wants a dashboard
    harness.make_tokenizer("chatml").save_pretrained(tmp_path / "model")
    write_tasks(tmp_path / "tasks.jsonl", "abstention", tasks)
    resources = {"enabled": False, "resources": {"gpus_per_node": 1, "num_nodes": 1}}
    wanted = {
        "grpo": {
            "val_batch_size": 4,
            "async_grpo": {"enabled": True, "max_trajectory_age_steps": age, "in_flight_weight_updates": True},
            **changes.pop("grpo", {}),
        },
        "loss_fn": {"use_importance_sampling_correction": True},
        "policy": {"generation": {"colocated": resources}},
        "checkpointing": {"enabled": checkpoints, "save_period": 1, "metric_name": None},
        **changes,
    }
    trainer = make_run(
        tmp_path / "run",
        nemo_rl_root=ROOT,
        model=str(tmp_path / "model"),
        prompts_per_step=prompts,
        generations_per_prompt=generations,
        val_period=1,
        max_steps=steps,
        max_total_tokens=1024,
        max_new_tokens=256,
        async_rollouts=True,
        gpus_per_node=2,
        overrides=wanted,
    )
    failure = failure or FailurePolicy(max_ungraded_fraction=1.0)
    validated = write_tasks(tmp_path / "validation.jsonl", "abstention", validation) if validation else None
    own = [*overrides("abstention", url), *more]
    text = render_any(trainer, failure, own, words, (tmp_path / "tasks.jsonl", validated))
    (tmp_path / "nemo_rl.yaml").write_text(text)
    steps_ledger = StepLedger(tmp_path / "run" / "ledger")
    driver = AsyncDriver(yaml.safe_load(text)["policy"], failure, steps_ledger, several=bool(words))
    return _run_training(tmp_path, driver, script, prompts)


def _run_training(tmp_path: Path, driver: AsyncDriver, script: Script, prompts: int) -> AsyncTrained:
    import nemo_rl.algorithms.grpo as grpo
    from nemo_rl.algorithms.loss import ClippedPGLossFn
    from nemo_rl.algorithms.utils import get_tokenizer
    from nemo_rl.data.collate_fn import rl_collate_fn
    from nemo_rl.data.utils import load_dataloader_state, setup_response_data
    from nemo_rl.models.generation import configure_generation_config
    from nemo_rl.utils.checkpoint import CheckpointManager
    from nemo_rl.utils.config import load_config
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader

    config = grpo.MasterConfig(**OmegaConf.to_container(load_config(tmp_path / "nemo_rl.yaml"), resolve=True))
    tokenizer = get_tokenizer(config.policy["tokenizer"])
    config.policy["generation"] = configure_generation_config(config.policy["generation"], tokenizer)
    log, policy = harness.Log(), harness.StandIn()
    checkpointer = CheckpointManager(config.checkpointing)
    last = checkpointer.get_latest_checkpoint_path()
    with hooked_async(driver):
        dataset, val_dataset, task_to_env, val_task_to_env = setup_response_data(tokenizer, config.data, config.env)
        loader = StatefulDataLoader(dataset, batch_size=prompts, collate_fn=rl_collate_fn, drop_last=True)
        if last is not None:
            load_dataloader_state(loader, last, config.data)
        grpo.async_grpo_train(
            policy=policy,
            policy_generation=harness.StandInGeneration(tokenizer, script),
            dataloader=loader,
            val_dataloader=StatefulDataLoader(val_dataset, batch_size=4, collate_fn=rl_collate_fn)
            if val_dataset
            else None,
            tokenizer=tokenizer,
            loss_fn=ClippedPGLossFn(config.loss_fn),
            task_to_env=task_to_env,
            val_task_to_env=val_task_to_env,
            logger=log,
            checkpointer=checkpointer,
            grpo_save_state=grpo._get_grpo_save_state(checkpointer.load_training_info(last)),
            master_config=config,
            max_trajectory_age_steps=config.grpo.async_grpo.max_trajectory_age_steps,
        )
    steps = [[_read_row(batch, place, tokenizer) for place in range(batch.size)] for batch in policy.trained]
    return AsyncTrained(steps, log.metrics, tmp_path / "run", policy.trained)


def _read_row(batch: Any, place: int, tokenizer: Any) -> AsyncRow:
    prompt, _, reply = tokenizer.decode(batch["input_ids"][place]).rpartition("<|im_start|>assistant\n")
    assert bool((batch["advantages"][place] == batch["advantages"][place, :1]).all())
    said = reply.partition("<|im_end|>")[0]
    return AsyncRow(read_number(prompt), said, float(batch["advantages"][place, 0]), float(batch["sample_mask"][place]))


def sort_wanted(lines: Sequence[str], values: Mapping[str, Fraction], **options: bool) -> list[tuple[str, float]]:
    """What each reply of a task ought to earn it, (reply, advantage) in order; replies without a value are lost."""
    kept = [one for one in lines if one in values]
    found = wanted_advantages([values[one] for one in kept], None, **options)
    lost = [(one, 0.0) for one in lines if one not in values]
    return sorted([*zip(kept, found, strict=True), *lost])
