"""Puts a verb's composition together; see ``gavel.envs.assembly``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gavel.envs.assembly import Assembly, LateModels, Parts, assemble_parts
from gavel.envs.registry import describe_environment
from gavel.judges.assets import AssetsConfig, AssetStore
from gavel.launch.config.schema import Composition, RunConfig, TasksConfig, TrainConfig
from gavel.launch.config.training_schema import TrainedOptions
from gavel.models.calls.transport import read_credentials
from gavel.models.service import get_config_key

__all__ = ["Assembly", "LateModels", "assemble_run", "make_asset_store", "make_parts", "split_environments"]


def make_asset_store(config: AssetsConfig) -> AssetStore:
    """Return the asset store a config names."""
    return config.make_store()


def make_parts(config: Composition) -> Parts:
    """Return what a composition's environment and judges are made of; its services are all those of the config."""
    return Parts(config.env, config.service_table, config.rubrics, config.judging, config.assets)


def assemble_run(config: Composition, *, with_policy: bool, grading_only: bool = False) -> Assembly:
    """Check a composition and make its parts.

    Args:
        config: the composition.
        with_policy: whether the policy is asked.
        grading_only: whether transcripts are only graded: what the environment calls besides its judge is then out of
            reach.

    Raises:
        ConfigError: names the key that does not fit; also where a new run would lack a credential, so that no folder is
            left behind.
        AssetError: a rubric's pinned text is missing or has drifted.
    """
    if isinstance(config, TrainConfig) and config.envs:
        return _join_assemblies([assemble_run(part, with_policy=False) for part in split_environments(config).values()])
    info = describe_environment(config.env)
    called, spare = info.called_services, info.spare_services
    declared = tuple(name for name in config.services if name not in called and name not in spare)
    kept = tuple(name for name in config.services if name in called or name in declared)
    kept = (*kept, "policy") if with_policy else kept
    made = assemble_parts(make_parts(config), declared=declared, kept=kept, withheld=called if grading_only else ())
    if _is_run_begun(config):
        for name, service in made.services.items():
            read_credentials(get_config_key(name), service)
    return made


def split_environments(config: TrainConfig) -> dict[str, TrainConfig]:
    """Return by name a training in each of a config's environments alone; under the empty name the config itself where
    it has one.

    Of the services each has those that it uses, and those that none uses.
    """
    if not config.envs:
        return {"": config}
    used = {name: _list_used_services(one) for name, one in config.envs.items()}
    anyone = set().union(*used.values())
    return {
        name: replace(
            config,
            env=one.env,
            reward=one.reward,
            rubrics=one.rubrics,
            judging=one.judging,
            tasks=TasksConfig(one.tasks, one.limit),
            validation=TasksConfig(one.validation, one.validation_limit),
            services={key: value for key, value in config.services.items() if key in used[name] or key not in anyone},
            envs={},
        )
        for name, one in config.envs.items()
    }


def _list_used_services(one: TrainedOptions) -> set[str]:
    info = describe_environment(one.env)
    judges = {judge for binding in one.judging.bindings.values() for judge in binding.judges}
    return {*info.called_services, *info.spare_services, *judges}


def _join_assemblies(made: Sequence[Assembly]) -> Assembly:
    """Return what environments of one training use together; its environment and judge are the first one's."""
    first = made[0]
    return Assembly(
        first.environment,
        first.judge,
        {name: binding for one in made for name, binding in one.bindings.items()},
        {name: service for one in made for name, service in one.services.items()},
        first.models,
    )


def _is_run_begun(config: Composition) -> bool:
    """Whether models will be called for a run that is not there yet; one that is may be whole, and needs no credential
    then.
    """
    run: RunConfig | None = getattr(config, "run", None)
    there = run is not None and run.dir is not None and Path(run.dir).expanduser().is_dir()
    return not there and not getattr(config, "dry_run", False)
