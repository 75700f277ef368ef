"""One step of NeMo-RL's own ``grpo_train`` from the YAML we emit, with a policy that learns nothing; needs
``NEMO_RL_ROOT``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_support import RIGHT, ROOT, make_run, overrides, render_alone, write_tasks

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.ledger import StepLedger
from gavel.envs.interfaces.nemo_rl.register import register_environments
from gavel.envs.interfaces.nemo_rl.threads import widen_executor
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.compose.compose import compose_config
from gavel.launch.training.layout import compute_layout
from gavel.launch.training.nemo_rl.config import NemoRlRun, render_environments
from gavel.launch.training.nemo_rl.trainer import list_environments
from gavel.launch.training.trainer import ComposedTraining

R, W = f"it is {RIGHT}", "it is not"


@contextmanager
def trainer_process() -> Iterator[None]:
    """Make this process what the wrapper entrypoint makes it: registered, with a wide executor, on a Ray of its own."""
    widen_executor()
    with harness.ray_cluster():
        register_environments(
            f"gavel_{env}" for env in ("abstention", "instruction_following", "vera_mh", "a", "b", "c", "z")
        )
        yield
    asyncio.set_event_loop_policy(None)


@dataclass
class Trained:
    """What a training left behind: the batches it was to learn from, its metrics, its folder."""

    batches: list[Any]
    metrics: dict[tuple[str, int], dict[str, Any]]
    folder: Path


def train(
    tmp_path: Path,
    url: str,
    reply: Callable[[str, int], Any],
    *,
    env: str = "abstention",
    tasks: int = 1,
    prompts: int = 0,
    generations: int = 8,
    validation: int = 0,
    failure: FailurePolicy | None = None,
    more: Sequence[str] = (),
    learner: harness.StandIn | None = None,
    edit: Callable[[Path], None] = lambda _: None,
    words: Sequence[str] = (),
    **changes: Any,
) -> Trained:
    """One step of ``grpo_train``, the whole way from our YAML; ``prompts`` of the tasks make a batch, 0: all. ``words``
    compose a training in several environments in the place of ``env``.
    """
    import nemo_rl.utils.memory_tracker as memory

    memory.memory_summary = lambda **_: ""  # wants a dashboard
    harness.make_tokenizer("chatml").save_pretrained(tmp_path / "model")
    edit(write_tasks(tmp_path / "tasks.jsonl", env, tasks))
    trainer = make_run(
        tmp_path / "run",
        nemo_rl_root=ROOT,
        model=str(tmp_path / "model"),
        prompts_per_step=prompts or tasks,
        generations_per_prompt=generations,
        val_period=1,
        max_steps=1,
        max_total_tokens=1024,
        max_new_tokens=256,
        overrides={"checkpointing": {"enabled": False}, "grpo": {"val_batch_size": 4}, **changes},
    )
    failure = failure or FailurePolicy(max_ungraded_fraction=1.0)
    validated = write_tasks(tmp_path / "validation.jsonl", env, validation) if validation else None
    own = [*overrides(env, url), *more]
    text = render_any(trainer, failure, own, words, (tmp_path / "tasks.jsonl", validated))
    path = tmp_path / "nemo_rl.yaml"
    path.write_text(text)
    policy = learner or harness.StandIn()
    metrics = _take_step(tmp_path, text, policy, failure, reply, prompts or tasks)
    return Trained(policy.trained, metrics, tmp_path / "run")


def render_any(
    trainer: NemoRlRun,
    failure: FailurePolicy,
    alone: Sequence[str],
    several: Sequence[str],
    files: tuple[Path, Path | None],
) -> str:
    """The YAML of a training in one environment and its files, or in those that ``several`` compose."""
    if not several:
        return render_alone(trainer, alone, *files, failure)
    config = compose_config("train", several)
    assembly = assemble_run(config, with_policy=False)
    layout = compute_layout(config, assembly.services)
    made = list_environments(ComposedTraining(config, assembly, layout, Path(trainer.run_dir)))
    return render_environments(trainer, made, failure)


def _take_step(
    tmp_path: Path,
    text: str,
    policy: harness.StandIn,
    failure: FailurePolicy,
    reply: Callable[[str, int], Any],
    size: int,
) -> dict[tuple[str, int], dict[str, Any]]:
    """Run NeMo-RL's own ``grpo_train`` on the rendered config, with batches of ``size`` prompts; return its metrics."""
    import nemo_rl.algorithms.grpo as grpo
    from nemo_rl.algorithms.loss import ClippedPGLossFn
    from nemo_rl.algorithms.utils import get_tokenizer
    from nemo_rl.data.collate_fn import rl_collate_fn
    from nemo_rl.data.utils import setup_response_data
    from nemo_rl.models.generation import configure_generation_config
    from nemo_rl.utils.config import load_config
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader

    config = grpo.MasterConfig(**OmegaConf.to_container(load_config(tmp_path / "nemo_rl.yaml"), resolve=True))
    tokenizer = get_tokenizer(config.policy["tokenizer"])
    config.policy["generation"] = configure_generation_config(config.policy["generation"], tokenizer)
    log = harness.Log()
    generation = harness.StandInGeneration(tokenizer, reply)
    joins, several = bool(config.grpo.use_dynamic_sampling), len(config.env) > 1
    steps = StepLedger(tmp_path / "run" / "ledger")
    with harness.hooked(Driver(yaml.safe_load(text)["policy"], failure, steps, joins=joins, several=several)):
        dataset, val_dataset, task_to_env, val_task_to_env = setup_response_data(tokenizer, config.data, config.env)
        kept, grpo.refit_policy_generation = grpo.refit_policy_generation, lambda *args, **options: {}
        try:
            grpo.grpo_train(
                policy,
                generation,
                StatefulDataLoader(dataset, batch_size=size, collate_fn=rl_collate_fn),
                StatefulDataLoader(val_dataset, batch_size=4, collate_fn=rl_collate_fn) if val_dataset else None,
                tokenizer,
                ClippedPGLossFn(config.loss_fn),
                task_to_env,
                val_task_to_env,
                log,
                harness.StandIn(),
                grpo._initial_grpo_save_state(),
                config,
            )
        finally:
            grpo.refit_policy_generation = kept
    return log.metrics


def advantages(batch: Any) -> list[float]:
    """Each sample's advantage, the same for all its tokens."""
    assert bool((batch["advantages"] == batch["advantages"][:, :1]).all())
    return [round(float(value), 3) for value in batch["advantages"][:, 0]]
