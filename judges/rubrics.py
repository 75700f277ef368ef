"""The table of rubric profiles: a new rubric is one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gavel.judges import (
    rubric_gavel_abstention,
    rubric_gavel_instruction_following,
    rubric_nvidia_abstention,
    rubric_vera_mh,
    rubric_vera_mh_small,
)
from gavel.judges.assets import AssetStore
from gavel.judges.types import Rubric, RubricConfig
from gavel.models.errors import ConfigError, nearest


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a rubric before it is made: the target formats it grades, the assets it needs, what its module says of it."""

    targets: tuple[str, ...]
    assets: tuple[str, ...]
    build: Callable[[RubricConfig, AssetStore], Rubric]
    about: str = ""


def _entry(module: object) -> Profile:
    return Profile(module.TARGETS, module.ASSETS, module.build, module.__doc__ or "")  # type: ignore[attr-defined]


_MODULES = (
    rubric_nvidia_abstention,
    rubric_gavel_abstention,
    rubric_gavel_instruction_following,
    rubric_vera_mh,
    rubric_vera_mh_small,
)
PROFILES: Mapping[str, Profile] = MappingProxyType({module.PROFILE: _entry(module) for module in _MODULES})


def find_profile(name: str, *, field: str = "profile") -> Profile:
    """Return the profile of this name.

    Raises:
        ConfigError: there is none; says the nearest ones.
    """
    if name not in PROFILES:
        near = nearest(name, PROFILES)
        raise ConfigError(
            "there is no such rubric profile", field=field, found=name, allowed=", ".join(PROFILES),
            remedy=f"did you mean `{near[0]}`?" if near else "",
        )  # fmt: skip
    return PROFILES[name]


def make_rubric(config: RubricConfig, assets: AssetStore, *, field: str = "profile") -> Rubric:
    """Make a configured rubric.

    Raises:
        ConfigError: unknown profile, or sampling out of range.
        AssetError: a text it needs cannot be had, or it is not the pinned one.
    """
    profile = find_profile(config.profile, field=field)
    _check_sampling(config, field.rpartition(".")[0])
    return profile.build(config, assets)


def _check_sampling(config: RubricConfig, prefix: str) -> None:
    bounds = (("max_response_tokens", 1, 1_000_000), ("temperature", 0.0, 2.0), ("top_p", 1e-6, 1.0))
    for name, low, high in bounds:
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise ConfigError(
                "out of range", field=f"{prefix}.{name}" if prefix else name, found=str(value), allowed=f"{low:g} to {high:g}"
            )
