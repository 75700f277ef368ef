"""Puts parts together: assets, rubrics and bindings checked, the judge and the environment made; no model started."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gavel.envs.plugins import find_added_rubrics
from gavel.envs.registry import make_environment
from gavel.envs.types import Environment, ServiceNeeded
from gavel.judges.assets import AssetsConfig
from gavel.judges.bindings import Binding, bind_rubrics
from gavel.judges.judge import BoundJudges
from gavel.judges.types import Judging, RubricConfig
from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.types import ChatModel


@record
class Parts:
    """What an environment and its judges are made of.

    ``env`` holds ``name`` and options; ``services`` every one by its name.
    """

    env: Mapping[str, Any]
    services: Mapping[str, Service]
    rubrics: Mapping[str, RubricConfig]
    judging: Judging
    assets: AssetsConfig


class LateModels(Mapping[str, ChatModel]):
    """The services by name, known before they are started: what is made with it may be checked before any GPU is taken.

    ``withheld`` are known by name only: they are never started, and looking one up raises ``ServiceNeeded``.
    """

    def __init__(self, names: tuple[str, ...], withheld: tuple[str, ...] = ()) -> None:
        self._names, self._withheld = (*names, *withheld), withheld
        self._models: dict[str, ChatModel] = {}

    def set_models(self, models: Mapping[str, ChatModel]) -> None:
        """Give the started services."""
        self._models = dict(models)

    def __getitem__(self, name: str) -> ChatModel:
        if name not in self._names:
            raise ConfigError("there is no such service", field=f"services.{name}", allowed=", ".join(self._names))
        if name in self._withheld:
            raise ServiceNeeded(name)
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


def assemble_parts(
    parts: Parts, *, declared: Collection[str] = (), kept: Collection[str] | None = None, withheld: Collection[str] = ()
) -> Assembly:
    """Check parts and join them.

    Args:
        parts: what is joined.
        declared: services that a binding must use.
        kept: services that are used besides those that judge; None keeps all.
        withheld: services that are neither started nor called unless they judge; see ``LateModels``.

    Raises:
        ConfigError: names the key that does not fit.
        AssetError: a rubric's pinned text is missing or has drifted.
    """
    more = find_added_rubrics(rubric.profile for rubric in parts.rubrics.values() if rubric.file is None)
    bindings = bind_rubrics(
        parts.rubrics, parts.judging.bindings, parts.services, parts.assets.make_store(), declared=declared, added=more
    )
    judges = {judge for binding in parts.judging.bindings.values() for judge in binding.judges}
    away = tuple(name for name in parts.services if name in withheld and name not in judges)
    used = {
        name: service
        for name, service in parts.services.items()
        if name in judges or (name not in away and (kept is None or name in kept))
    }
    models = LateModels(tuple(used), away)
    judge = BoundJudges(bindings, models.__getitem__)
    return Assembly(make_environment(parts.env, judge, models), judge, bindings, used, models)
