"""What an actor is made with: plain data, as it stands under ``env.<name>`` of a NeMo-RL config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gavel.envs.assembly import Assembly, Parts, assemble_parts
from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.stamps import PREFIX as PREFIX
from gavel.envs.registry import check_reward, make_reward
from gavel.envs.types import RewardPolicy
from gavel.models.codec import decode, record
from gavel.models.errors import ConfigError, shorten_value


@record
class ActorConfig:
    """``parts``: services (all external), rubrics, judging, assets, environment. ``reward`` holds ``name`` and options.
    ``failure`` is applied by the driver's hooks. ``ledger`` is a folder on a shared disk; None keeps no ledger, so that
    a restarted actor asks its judge again. ``deadline`` bounds one step of one sample, in seconds. ``policy_model``
    stands in replies. ``check_workers``: Ray workers for CPU-heavy checks, on all nodes; 0 checks in processes beside
    the actor. ``service_keys``: where the user's own config has a service (``general`` -> ``judge``), for errors; the
    others stand below ``parts.services``. ``name`` tells environments of one training apart, in metrics and in the
    ledger's files; None is the environment's own name.
    """

    parts: Parts
    reward: Mapping[str, Any]
    failure: FailurePolicy = FailurePolicy()
    ledger: str | None = None
    deadline: float = 900.0
    policy_model: str = "policy"
    check_workers: int = 0
    service_keys: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise ValueError(f"deadline is {self.deadline}; allowed: more than 0 seconds")
        if self.check_workers < 0:
            raise ValueError(f"check_workers is {self.check_workers}; allowed: 0 or more")

    def make_service_key(self, name: str) -> str:
        """Return the key at which the user has written a service."""
        return self.service_keys.get(name, f"parts.services.{name}")


def read_config(raw: Mapping[str, Any], *, name: str = "") -> ActorConfig:
    """Read ``env.<name>``, resolved.

    Raises:
        ConfigError: names the key; a ``???`` that nothing has filled, a managed service (judges run outside NeMo-RL's
            placement).
    """
    prefix = f"env.{name}" if name else "env"
    _refuse_missing(raw, prefix)
    config = decode(ActorConfig, raw, prefix=prefix, error=ConfigError)
    for service_name, service in config.parts.services.items():
        if service.mode != "external":
            raise ConfigError(
                "a service inside NeMo-RL must be external",
                field=f"{prefix}.parts.services.{service_name}.mode",
                found=service.mode,
                allowed="external: the judge is started before the trainer and reached by its URL",
                remedy="start it with `gavel judge`, or let `gavel train` place it",
            )
    return config


def build_parts(config: ActorConfig) -> tuple[Assembly, RewardPolicy]:
    """Check an actor's config and make its parts; nothing is called.

    Raises:
        ConfigError, AssetError: what does not fit.
    """
    check_reward(config.parts.env.get("name"), config.reward)
    return assemble_parts(config.parts), make_reward(config.reward)


def _refuse_missing(value: Any, path: str) -> None:
    if value == "???":
        raise ConfigError("this value is missing", field=path, found=shorten_value(value), remedy=f"set {path}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_missing(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            _refuse_missing(item, f"{path}[{place}]")
