"""The one config file a trainer is started with: NeMo-RL's own YAML, or for another trainer the same sections of
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from gavel.envs.assembly import Assembly, Parts
from gavel.envs.interfaces.nemo_rl.config import PREFIX, ActorConfig
from gavel.launch.assembly.assemble import assemble_run, make_parts, split_environments
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.training.layout import Layout
from gavel.launch.training.nemo_rl.config import (
    SECTION,
    Overlaid,
    TrainedEnvironment,
    TrainerConfig,
    find_overlaid,
    render_environments,
)
from gavel.models.codec import to_plain
from gavel.models.service import Service

NOWHERE = "judge.invalid"
"""The end of a placeholder host; no such name can ever be resolved (RFC 2606)."""


def make_external(services: Mapping[str, Service]) -> dict[str, Service]:
    """Return services as a trainer sees them: external, each replica of a managed one at an address that stands for the
    real one.
    """
    return {
        name: service
        if service.mode == "external"
        else replace(
            service,
            mode="external",
            gpus=1,
            replicas=1,
            tensor_parallel_size=None,
            python=None,
            port=0,
            engine_args=None,
            cpu=False,
            base_url=tuple(
                f"http://{name.replace('_', '-')}-{index}.{NOWHERE}:9000/v1" for index in range(service.replicas)
            ),
        )
        for name, service in services.items()
    }


def make_trainer_config(config: TrainConfig, assembly: Assembly, layout: Layout, run: Path) -> tuple[str, str]:
    """Return the name of the trainer's config and its text.

    Raises:
        ConfigError: see ``gavel.launch.training.nemo_rl.config.render_config``.
    """
    if not config.trainer.nemo_rl:
        return "trainer.yaml", str(
            yaml.safe_dump(_make_own(config, assembly, run), sort_keys=False, allow_unicode=True, width=120)
        )
    environments = _list_environments(config, assembly)
    return "nemo_rl.yaml", render_environments(_make_nemo_rl(config, layout, run), environments, config.failure)


def _list_environments(config: TrainConfig, assembly: Assembly) -> list[TrainedEnvironment]:
    """Return what each environment of a training is made of; ``assembly`` is the one, or all of them joined."""
    found = []
    for name, part in split_environments(config).items():
        made = assembly if not name else assemble_run(replace(part, dry_run=True), with_policy=False)
        found.append(
            TrainedEnvironment(
                _make_parts(part, made),
                made,
                part.reward,
                str(resolve_task_path(str(part.tasks.path))),
                str(resolve_task_path(part.validation.path)) if part.validation.path else None,
                part.tasks.limit,
                part.validation.limit,
                config.envs[name].weight if name else 1.0,
                name or None,
            )
        )
    return found


def _make_parts(config: TrainConfig, assembly: Assembly) -> Parts:
    """Return the parts with the services that are used, as the config has them: the assembly may be one without
    credentials.
    """
    return replace(
        make_parts(config), services=make_external({name: config.service_table[name] for name in assembly.services})
    )


def _make_nemo_rl(config: TrainConfig, layout: Layout, run: Path) -> TrainerConfig:
    chosen = config.trainer
    assert chosen.kind != "trl"
    assert chosen.kind != "command"
    return TrainerConfig(
        nemo_rl_root=str(chosen.nemo_rl_root),
        run_dir=str(run),
        model=str(chosen.model),
        tasks=str(config.tasks.path),
        kind=chosen.kind,
        async_rollouts=chosen.async_rollouts,
        prompts_per_step=chosen.prompts_per_step,
        generations_per_prompt=chosen.generations_per_prompt,
        max_steps=chosen.max_steps,
        max_total_tokens=chosen.max_total_tokens,
        max_new_tokens=chosen.max_new_tokens,
        learning_rate=chosen.learning_rate,
        gpus_per_node=max(layout.trainer_gpus, 0),
        nodes=config.cluster.nodes,
        seed=config.seed,
        val_period=chosen.val_period,
        step_deadline=chosen.step_deadline,
        check_workers=chosen.check_workers,
        overrides=chosen.overrides,
        recipe=chosen.recipe,
    )


def list_overlaid(config: TrainConfig, assembly: Assembly, layout: Layout, run: Path) -> list[Overlaid]:
    """Return what a NeMo-RL run changes of its recipe, see ``find_overlaid``."""
    return find_overlaid(_make_nemo_rl(config, layout, run), _list_environments(config, assembly))


def _make_own(config: TrainConfig, assembly: Assembly, run: Path) -> dict[str, Any]:
    used = _make_parts(config, assembly)
    actor = ActorConfig(
        used,
        config.reward,
        config.failure,
        str(run / "ledger"),
        config.trainer.step_deadline,
        str(config.trainer.model or "policy"),
        config.trainer.check_workers,
    )
    return {
        "env": {f"{PREFIX}{assembly.environment.name}": to_plain(actor)},
        "data": {
            split: _make_data(tasks, assembly)
            for split, tasks in (("train", config.tasks), ("validation", config.validation))
        },
        "trainer": to_plain(config.trainer),
        "seed": config.seed,
        SECTION: {"run_dir": str(run), "kind": config.trainer.kind, "checkpoints": str(run / "checkpoints")},
    }


def _make_data(tasks: Any, assembly: Assembly) -> dict[str, Any] | None:
    if not tasks.path:
        return None
    return {
        "data_path": str(resolve_task_path(tasks.path).resolve()),
        "limit": tasks.limit,
        "env": assembly.environment.name,
        "binding": assembly.environment.info.binding,
    }


def with_addresses(text: str, urls: Mapping[str, tuple[str, ...]], save_by: str | None = None) -> str:
    """Return a trainer's config with the real addresses of services, and the time by which the last checkpoint must be
    saved.

    Args:
        text: the file as ``make_trainer_config`` made it.
        urls: by service.
        save_by: ``DD:HH:MM:SS`` from now; only NeMo-RL's config has a place for it, and one that is set there stays.
    """
    values = yaml.safe_load(text)
    for actor in (values.get("env") or {}).values():
        services = (actor.get("parts") or {}).get("services") or {} if isinstance(actor, dict) else {}
        for name, found in urls.items():
            if name in services:
                services[name]["base_url"] = list(found)
    saving = values.get("checkpointing")
    if save_by and isinstance(saving, dict) and saving.get("enabled") and not saving.get("checkpoint_must_save_by"):
        saving["checkpoint_must_save_by"] = save_by
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))
