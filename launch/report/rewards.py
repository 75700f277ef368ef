"""The reward policies that fit an environment, side by side: the run's own first, then the others with their default
options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gavel.envs.registry import REWARDS, choose_entry, make_reward, reward_names
from gavel.envs.types import RewardPolicy
from gavel.launch.runs.child import format_options
from gavel.models.errors import GavelError


@dataclass(frozen=True, slots=True)
class NamedReward:
    """A reward policy with its name and its options in words; ``own`` marks the run's."""

    name: str
    options: str
    own: bool
    policy: RewardPolicy

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and greatest value."""
        return self.policy.bounds


def list_rewards(env: str, own: Mapping[str, Any]) -> tuple[NamedReward, ...]:
    """Return the policies for an environment's outcomes; ``own`` holds the options of the run's.

    One that cannot be made (a run of another version) is left out.
    """
    names = reward_names(env)
    plain = dict(own)
    configs = [plain, *({"name": name} for name in names if not _is_same(name, plain))]
    found = []
    for config in configs:
        try:
            policy = make_reward(config)
        except GavelError:
            continue
        name = str(config["name"])
        found.append(NamedReward(name, format_options(config).removeprefix(name).strip(), config is plain, policy))
    return tuple(found)


def _is_same(name: str, own: Mapping[str, Any]) -> bool:
    """Whether the run's policy is this one with its default options, which is shown once."""
    if own.get("name") != name:
        return False
    cls, _ = choose_entry("reward", name, REWARDS).load_parts()
    defaults = {field: getattr(cls(), field) for field in cls.__dataclass_fields__}
    return all(own.get(field, value) == value for field, value in defaults.items())
