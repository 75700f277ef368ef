"""Puts a verb's composition together; see ``gavel.envs.assembly``."""

from __future__ import annotations

from gavel.envs.assembly import Assembly, LateModels, Parts, assemble_parts
from gavel.envs.registry import called_services
from gavel.judges.assets import AssetsConfig, AssetStore
from gavel.launch.schema import Composition

__all__ = ["Assembly", "LateModels", "assemble", "asset_store", "parts_of"]


def asset_store(config: AssetsConfig) -> AssetStore:
    """Return the asset store a config names."""
    return config.store()


def parts_of(config: Composition) -> Parts:
    """Return what a composition's environment and judges are made of; its services are all those of the config."""
    return Parts(config.env, config.service_table, config.rubrics, config.judging, config.assets)


def assemble(config: Composition, *, with_policy: bool) -> Assembly:
    """Check a composition and make its parts.

    Raises:
        ConfigError: names the key that does not fit.
        AssetError: a rubric's pinned text is missing or has drifted.
    """
    called = called_services(config.env)
    declared = tuple(name for name in config.services if name not in called)
    kept = (*config.services, "policy") if with_policy else tuple(config.services)
    return assemble_parts(parts_of(config), declared=declared, kept=kept)
