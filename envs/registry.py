"""Environments, reward policies and sources by name: one line each, imported when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from gavel.envs.types import Environment, RewardPolicy
from gavel.judges.types import Judge
from gavel.models.codec import decode, record
from gavel.models.errors import ConfigError, nearest, shorten
from gavel.models.types import ChatModel


@record
class Entry:
    """Where a choice lives: ``config`` (a ``@record`` class) and ``make`` (a callable) in ``module``."""

    module: str
    config: str
    make: str

    def load(self) -> tuple[type[Any], Any]:
        """Import the module; return the config class and the maker."""
        module = import_module(self.module)
        return getattr(module, self.config), getattr(module, self.make)


_ABSTENTION = "gavel.envs.abstention"

ENVIRONMENTS: Mapping[str, Entry] = {
    "abstention": Entry(f"{_ABSTENTION}.environment", "AbstentionConfig", "build"),
}
REWARDS: Mapping[str, Entry] = {
    "tiered": Entry(f"{_ABSTENTION}.rewards", "TieredConfig", "tiered"),
    "omniscience": Entry(f"{_ABSTENTION}.rewards", "OmniscienceConfig", "omniscience"),
}


def make_environment(config: Mapping[str, Any], judge: Judge, services: Mapping[str, ChatModel]) -> Environment:
    """Make the environment ``config["name"]`` with the other keys as its options.

    Raises:
        ConfigError: an unknown name or option, with the nearest valid ones.
    """
    options, make = _options("env", config, ENVIRONMENTS)
    return cast("Environment", make(options, judge, services))


def make_reward(config: Mapping[str, Any]) -> RewardPolicy:
    """Make the reward policy ``config["name"]`` with the other keys as its options.

    Raises:
        ConfigError: an unknown name or option, with the nearest valid ones; numbers that do not fit together.
    """
    options, make = _options("reward", config, REWARDS)
    return cast("RewardPolicy", make(options))


def _options(group: str, config: Mapping[str, Any], table: Mapping[str, Entry]) -> tuple[Any, Any]:
    entry = choose(group, config.get("name"), table)
    cls, make = entry.load()
    rest = {key: value for key, value in config.items() if key != "name"}
    return decode(cls, rest, prefix=group, error=ConfigError), make


def choose(group: str, name: object, table: Mapping[str, Entry]) -> Entry:
    """Return the entry called ``name``.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if isinstance(name, str) and name in table:
        return table[name]
    near = nearest(str(name), table)
    raise ConfigError(
        f"there is no such {group}", field=f"{group}.name", found=shorten(name), allowed=", ".join(table),
        remedy=f"did you mean {group}={near[0]}?" if near else f"choose one: {group}={next(iter(table))}",
    )  # fmt: skip
