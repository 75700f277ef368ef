"""What goes into the one config file a trainer is started with: the services it is to find, and for a trainer without a
language of its own the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from gavel.envs.assembly import Assembly, Parts
from gavel.envs.interfaces.nemo_rl.config import PREFIX, ActorConfig
from gavel.launch.assembly.assemble import make_parts
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.training.trainer import SECTION, ComposedTraining
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


def make_trained_parts(config: TrainConfig, assembly: Assembly) -> Parts:
    """Return the parts with the services that are used, as the config has them: the assembly may be one without
    credentials.
    """
    return replace(
        make_parts(config), services=make_external({name: config.service_table[name] for name in assembly.services})
    )


def render_plain_config(training: ComposedTraining) -> tuple[str, str]:
    """Return the name and the text of the config for a trainer that has no language of its own."""
    values = _make_own(training.config, training.assembly, training.path)
    return "trainer.yaml", str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))


def _make_own(config: TrainConfig, assembly: Assembly, run: Path) -> dict[str, Any]:
    used = make_trained_parts(config, assembly)
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
        text: the file as a trainer's ``render`` made it.
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
