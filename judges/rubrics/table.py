"""The table of rubric profiles: a new rubric is one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gavel.judges.assets import AssetStore
from gavel.judges.form_types import RubricForm
from gavel.judges.rubrics import (
    gavel_abstention,
    gavel_instruction_following,
    nvidia_abstention,
    vera_mh,
    vera_mh_small,
)
from gavel.judges.rubrics.file import read_rubric_file
from gavel.judges.rubrics.form_rubric import make_form_rubric
from gavel.judges.types import Rubric, RubricConfig
from gavel.models.errors import ConfigError, find_nearest


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a rubric before it is made: the target formats it grades, the assets it needs, what its module
    says of it.
    """

    targets: tuple[str, ...]
    assets: tuple[str, ...]
    build: Callable[[RubricConfig, AssetStore], Rubric]
    about: str = ""


def _make_entry(module: object) -> Profile:
    return Profile(module.TARGETS, module.ASSETS, module.build, module.__doc__ or "")  # type: ignore[attr-defined]


_MODULES = (
    nvidia_abstention,  # as upstream grades
    gavel_abstention,
    gavel_instruction_following,
    vera_mh,
    vera_mh_small,
)
PROFILES: Mapping[str, Profile] = MappingProxyType({module.PROFILE: _make_entry(module) for module in _MODULES})


def find_profile(name: str, *, field: str = "profile", added: Mapping[str, Profile] = PROFILES) -> Profile:
    """Return the profile of this name, ours or one of those ``added``.

    Raises:
        ConfigError: there is none; says the nearest ones.
    """
    known = {**added, **PROFILES}
    if name not in known:
        near = find_nearest(name, known)
        raise ConfigError(
            "there is no such rubric profile",
            field=field,
            found=name or "none",
            allowed=", ".join(known),
            remedy=f"did you mean `{near[0]}`?"
            if near
            else f"one of your own: {field.rpartition('.')[0]}.file=FILE.yaml",
        )
    return known[name]


def get_profile(config: RubricConfig, *, field: str = "profile", added: Mapping[str, Profile] = PROFILES) -> Profile:
    """Return the profile of a configured rubric, which a file of its own makes without any table.

    Raises:
        ConfigError: unknown profile, or the file cannot be read or does not fit together.
    """
    if config.file is None:
        return find_profile(config.profile, field=field, added=added)
    prefix = field.rpartition(".")[0]
    key = f"{prefix}.file" if prefix else "file"
    form = read_rubric_file(Path(config.file), key) if isinstance(config.file, str) else config.file
    if form.name in PROFILES:
        raise ConfigError(
            "gavel has a rubric of this name",
            where=form.path,
            field=key,
            found=form.name,
            allowed="a name of your own",
            remedy="change its owner or version",
        )
    return make_form_profile(form)


def make_form_profile(form: RubricForm) -> Profile:
    """Return the profile of a rubric that is data, for ``Plugin.rubrics`` too."""
    return Profile(form.targets, (), FormBuilder(form), f"{form.name}, from {form.path}" if form.path else form.name)


@dataclass(frozen=True, slots=True)
class FormBuilder:
    """Makes the rubric of one form."""

    form: RubricForm

    def __call__(self, config: RubricConfig, assets: AssetStore) -> Rubric:  # noqa: ARG002 - a form has no pinned assets
        """Make the rubric; raises ``ConfigError`` where the form does not fit together."""
        return make_form_rubric(self.form, config)


def make_rubric(
    config: RubricConfig, assets: AssetStore, *, field: str = "profile", added: Mapping[str, Profile] = PROFILES
) -> Rubric:
    """Make a configured rubric.

    Args:
        config: what is configured.
        assets: where pinned texts come from.
        field: the key of its profile, for errors.
        added: profiles besides ours.

    Raises:
        ConfigError: unknown profile, sampling out of range, or a file that does not fit.
        AssetError: a text it needs cannot be had, or it is not the pinned one.
    """
    profile = get_profile(config, field=field, added=added)
    _check_sampling(config, field.rpartition(".")[0])
    return profile.build(config, assets)


def _check_sampling(config: RubricConfig, prefix: str) -> None:
    bounds = (("max_response_tokens", 1, 1_000_000), ("temperature", 0.0, 2.0), ("top_p", 1e-6, 1.0))
    for name, low, high in bounds:
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise ConfigError(
                "out of range",
                field=f"{prefix}.{name}" if prefix else name,
                found=str(value),
                allowed=f"{low:g} to {high:g}",
            )
