"""The environments that one ``gavel serve`` gives to others: each a composition of its own, all over the same
services.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gavel.envs.assembly import Assembly, assemble_parts
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.registry import describe_environment, list_sources, make_reward
from gavel.envs.types import Digests
from gavel.launch.assembly.assemble import make_parts
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.overrides import read_head
from gavel.launch.config.schema import ServeConfig
from gavel.models.calls.transport import read_credentials
from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.service import Service, get_config_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHARED = ("policy", "judge", "services", "assets", "http", "run", "name", "also", "experiment", "dry_run")
"""What all environments of one service share; ``also`` cannot say it for one of them."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One environment as it will be served; ``grading`` is the same without the services that it calls besides its
    judge, None where it calls none."""

    name: str
    config: ServeConfig
    assembly: Assembly
    grading: Assembly | None

    @property
    def digest(self) -> str:
        """What its grades depend on, wherever it is served."""
        bindings = {name: binding.digest for name, binding in self.assembly.bindings.items()}
        called = {
            name: self.assembly.services[name].identity
            for name in describe_environment(self.config.env).called_services
        }
        return compute_digest([self.config.env, self.config.reward, bindings, called])

    def make_served(self) -> ServedEnvironment:
        """Return what answers for it."""
        environment = self.assembly.environment
        return ServedEnvironment(
            self.name,
            environment,
            make_reward(self.config.reward),
            self.assembly.bindings,
            Digests(self.digest, self.assembly.rubric_digests),
            list_sources(environment.name),
            deadline=self.config.http.deadline,
            grader=self.grading.environment if self.grading else None,
        )

    def set_models(self, models: Mapping[str, Any]) -> None:
        """Give the started services."""
        for assembly in (self.assembly, self.grading):
            if assembly is not None:
                assembly.models.set_models({name: models[name] for name in assembly.services})


def make_offers(config: ServeConfig) -> list[Offer]:
    """Check every environment of a config and make its parts; nothing is started.

    Raises:
        ConfigError: names the key that does not fit (``also.NAME`` before it where it stands in there), or a service
            nobody uses.
        AssetError: a rubric's pinned text is missing or has drifted.
    """
    offers: list[Offer] = []
    own = config.name or str(config.env.get("name"))
    for name in (own, *config.also):
        if not _NAME.fullmatch(name):
            raise ConfigError(
                "this name cannot stand in a path",
                field="name",
                found=shorten_value(name),
                allowed="letters, digits, - and _",
            )
    offers.append(_make_offer(own, config))
    for name, said in config.also.items():
        words = _split_words(name, said)
        _check_words(name, words, own)
        try:
            offers.append(_make_offer(name, _make_further_config(config, words)))
        except ConfigError as failed:
            raise failed.copy_with(field=f"also.{name}: {failed.field}".removesuffix(": ")) from None
    _check_used(config, offers)
    return offers


def list_services(offers: list[Offer]) -> dict[str, Service]:
    """Return the services that these environments use, by name.

    Raises:
        ConfigError: a credential's variable is not set.
    """
    used = {name: service for offer in offers for name, service in offer.assembly.services.items()}
    for name, service in used.items():
        read_credentials(get_config_key(name), service)
    return used


def _make_offer(name: str, config: ServeConfig) -> Offer:
    parts, called = make_parts(config), describe_environment(config.env).called_services
    grading = assemble_parts(parts, kept=(), withheld=called) if called else None
    make_reward(config.reward)
    return Offer(name, config, assemble_parts(parts, kept=called), grading)


def _make_further_config(config: ServeConfig, words: list[str]) -> ServeConfig:
    """Return the config of a further environment: what the words say of it, over the services of ``config``."""
    unused = ["judge.base_url=http://127.0.0.1:1/v1", "judge.model=unused"]
    other: ServeConfig = compose_config("serve", [*unused, *words], config.config_dirs[:-1])  # the last one is ours
    return replace(config, env=other.env, reward=other.reward, rubrics=other.rubrics, judging=other.judging)


def _split_words(name: str, said: str | Sequence[str]) -> list[str]:
    try:
        return shlex.split(said) if isinstance(said, str) else list(said)
    except ValueError:
        raise ConfigError(
            "a quotation is not closed",
            field=f"also.{name}",
            found=shorten_value(said),
            allowed="the words of a command line",
            remedy="close it, or give a list of words: also.NAME=['env=…','reward=…']",
        ) from None


def _check_words(name: str, words: list[str], own: str) -> None:
    if name == own:
        raise ConfigError(
            "this name is taken by the first environment", field=f"also.{name}", remedy="choose another, or set name=…"
        )
    for word in words:
        if (key := read_head(word)) in _SHARED:
            raise ConfigError(
                "this is shared by every environment of a service",
                field=f"also.{name}",
                found=shorten_value(word),
                allowed="env, reward, rubrics and judging",
                remedy=f"set {key} beside also, not in it",
            )


def _check_used(config: ServeConfig, offers: list[Offer]) -> None:
    """Refuse a declared service that no binding and no environment uses, as the other verbs do."""
    infos = [describe_environment(offer.config.env) for offer in offers]
    spare = {name for info in infos for name in (*info.called_services, *info.spare_services)}
    judges = {binding.service for offer in offers for binding in offer.assembly.bindings.values()}
    for name in config.services:
        if name not in spare and name not in judges:
            raise ConfigError(
                "no environment uses this service",
                field=f"services.{name}",
                found=f"bindings use: {', '.join(sorted(judges))}",
                remedy=f"bind it under judging.bindings, or remove it: ~services.{name}",
            )
