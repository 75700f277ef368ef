"""Puts a verb's composition together; see ``gavel.envs.assembly``."""

from __future__ import annotations

from pathlib import Path

from gavel.envs.assembly import Assembly, LateModels, Parts, assemble_parts
from gavel.envs.registry import describe_environment
from gavel.judges.assets import AssetsConfig, AssetStore
from gavel.launch.config.schema import Composition, RunConfig
from gavel.models.calls.transport import read_credentials
from gavel.models.service import get_config_key

__all__ = ["Assembly", "LateModels", "assemble_run", "make_asset_store", "make_parts"]


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


def _is_run_begun(config: Composition) -> bool:
    """Whether models will be called for a run that is not there yet; one that is may be whole, and needs no credential
    then.
    """
    run: RunConfig | None = getattr(config, "run", None)
    there = run is not None and run.dir is not None and Path(run.dir).expanduser().is_dir()
    return not there and not getattr(config, "dry_run", False)
