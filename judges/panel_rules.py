"""From a binding's config to the rule of a panel or a cascade; what cannot work, or has no effect, is refused."""

from __future__ import annotations

from collections.abc import Mapping

from gavel.judges.panels import CASCADE, PanelRule, read_label_scores
from gavel.judges.rubrics.vera_mh import VeraMhRubric
from gavel.judges.types import BindingConfig, Combine, Rubric
from gavel.models.errors import ConfigError
from gavel.models.service import Service


def make_panel_rule(
    config: BindingConfig, rubric: Rubric, services: Mapping[str, Service], field: str
) -> PanelRule | None:
    """Return the rule of a binding with several judges, None for one with a single judge.

    Args:
        config: the binding.
        rubric: what it judges with.
        services: every service by name.
        field: the binding's key, for errors.

    Raises:
        ConfigError: names the key that does not fit, and why.
    """
    if isinstance(config.judge, str):
        _refuse_unread(config, field)
        return None
    _check_members(config, rubric, services, field)
    if config.cascade is not None:
        return _make_cascade(config, rubric, field)
    combine: Combine = "majority" if config.combine is None else config.combine
    if combine == "mean" and not read_label_scores(rubric):
        raise ConfigError(
            "the labels of this rubric have no scores, so they have no mean",
            field=f"{field}.combine",
            found=f"mean, with {rubric.profile}",
            allowed="majority, unanimous, first",
        )
    return PanelRule(config.judge, combine, _choose_quorum(config, combine, field))


def _refuse_unread(config: BindingConfig, field: str) -> None:
    for key in ("combine", "quorum", "cascade"):
        if getattr(config, key) is not None:
            raise ConfigError(
                "this key has no effect with a single judge",
                field=f"{field}.{key}",
                found=f"judge={config.judge}",
                remedy=f"name several: {field}.judge=[{config.judge},OTHER], or remove it",
            )


def _check_members(config: BindingConfig, rubric: Rubric, services: Mapping[str, Service], field: str) -> None:
    names = config.judges
    if len(names) < 2:
        raise ConfigError(
            "a panel has at least two judges",
            field=f"{field}.judge",
            found=", ".join(names) or "none",
            remedy=f"name another service, or write {field}.judge={names[0] if names else 'general'}",
        )
    seen: dict[str, str] = {}
    for name in names:
        identity = services[name].identity
        if identity in seen:
            raise ConfigError(
                "two members of this panel are one judge, whose verdict would count twice",
                field=f"{field}.judge",
                found=f"{seen[identity]}, {name}",
                allowed="each model once",
            )
        seen[identity] = name
    if isinstance(rubric, VeraMhRubric):
        raise ConfigError(
            "this rubric cannot be asked of several judges: each answer decides which question comes next, so that "
            "members who differ would be asked different questions",
            field=f"{field}.judge",
            found=", ".join(names),
            allowed="one service",
            remedy="grade with each judge in a run of its own: gavel regrade RUN only=all, then gavel compare",
        )


def _choose_quorum(config: BindingConfig, combine: str, field: str) -> int:
    members = len(config.judges)
    if combine == "first":
        if config.quorum is not None:
            raise ConfigError(
                "this key has no effect with combine=first, which takes one verdict",
                field=f"{field}.quorum",
                remedy="remove it",
            )
        return 1
    if config.quorum is None:
        return members if combine == "unanimous" else members // 2 + 1
    if not 1 <= config.quorum <= members:
        raise ConfigError(
            "out of range", field=f"{field}.quorum", found=str(config.quorum), allowed=f"1 to {members}, its members"
        )
    return config.quorum


def _make_cascade(config: BindingConfig, rubric: Rubric, field: str) -> PanelRule:
    cascade = config.cascade
    assert cascade is not None
    for key in ("combine", "quorum"):
        if getattr(config, key) is not None:
            raise ConfigError(f"this key has no effect beside {field}.cascade", field=f"{field}.{key}")
    if len(config.judges) != 2:
        raise ConfigError(
            "a cascade has two judges: the cheap one, then the strong one",
            field=f"{field}.judge",
            found=", ".join(config.judges),
        )
    for label in cascade.trusted:
        if label not in rubric.labels:
            raise ConfigError(
                "this rubric has no such label",
                field=f"{field}.cascade.trusted",
                found=label,
                allowed=", ".join(rubric.labels),
            )
    return PanelRule(config.judges, CASCADE, 1, cascade.trusted, cascade.samples, cascade.min_precision)
