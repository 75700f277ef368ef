"""Puts a composition together: assets, rubrics and bindings checked, the judge and the environment made; no model started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gavel.envs.registry import called_services, make_environment
from gavel.envs.types import Environment
from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding, bind
from gavel.judges.judge import BoundJudges
from gavel.launch.schema import AssetsConfig, Composition
from gavel.models.errors import ConfigError
from gavel.models.pinned import default_cache
from gavel.models.service import Service
from gavel.models.types import ChatModel


class LateModels(Mapping[str, ChatModel]):
    """The services by name, known before they are started: what is made with it may be checked before any GPU is taken."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._models: dict[str, ChatModel] = {}

    def start(self, models: Mapping[str, ChatModel]) -> None:
        """Give the started services."""
        self._models = dict(models)

    def __getitem__(self, name: str) -> ChatModel:
        if name not in self._names:
            raise ConfigError("there is no such service", field=f"services.{name}", allowed=", ".join(self._names))
        assert name in self._models, f"service {name} is used before it was started"
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True)
class Assembly:
    """A checked composition. ``services`` are the ones it uses, the policy's among them where there is one."""

    environment: Environment
    judge: BoundJudges
    bindings: Mapping[str, Binding]
    services: Mapping[str, Service]
    models: LateModels

    @property
    def rubric_digests(self) -> dict[str, str]:
        """The digest of each binding's rubric."""
        return {name: binding.rubric.digest for name, binding in self.bindings.items()}


def asset_store(config: AssetsConfig) -> AssetStore:
    """Return the asset store a config names."""
    cache = Path(config.cache).expanduser() if config.cache else default_cache()
    return AssetStore(cache, Path(config.mirror).expanduser() if config.mirror else None, config.offline)


def assemble(config: Composition, *, with_policy: bool) -> Assembly:
    """Check a composition and make its parts.

    Raises:
        ConfigError: names the key that does not fit.
        AssetError: a rubric's pinned text is missing or has drifted.
    """
    table, called = config.service_table, called_services(config.env)
    declared = tuple(name for name in config.services if name not in called)
    bindings = bind(config.rubrics, config.judging.bindings, table, asset_store(config.assets), declared=declared)
    judges = {binding.judge for binding in config.judging.bindings.values()}
    used = {
        name: service
        for name, service in table.items()
        if name in judges or name in config.services or (with_policy and name == "policy")
    }
    models = LateModels(tuple(used))
    judge = BoundJudges(bindings, models.__getitem__)
    return Assembly(make_environment(config.env, judge, models), judge, bindings, used, models)
