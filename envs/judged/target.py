"""The target of a judged task: an object of the user's own, described by a small schema in the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.errors import ConfigError, find_nearest, shorten_value

TURNS = "turns"
"""The field of a target with what the user says after each reply."""
OWN_FIELDS = (TURNS, "criteria", "instructions", "language")
"""Fields that a schema need not describe: the environment reads them itself."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": _is_number,
    "flag": lambda value: isinstance(value, bool),
    "texts": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "any": lambda _: True,
}
"""What a field of a target may be."""


def check_schema(schema: Mapping[str, str]) -> None:
    """Refuse a schema with a kind that is not known.

    Raises:
        ConfigError: names the field.
    """
    for name, kind in schema.items():
        if kind.removesuffix("?") not in _KINDS:
            near = find_nearest(kind.removesuffix("?"), _KINDS)
            raise ConfigError(
                "there is no such kind of field",
                field=f"env.target.{name}",
                found=kind,
                allowed=f"{', '.join(_KINDS)}; with a ? behind it, the field may be absent",
                remedy=f"did you mean {near[0]}?" if near else "",
            )


def check_target(raw: Mapping[str, Any], schema: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, Any]:
    """Return a target that fits its schema and has what the rubrics need.

    Args:
        raw: the target as it stands in the row.
        schema: the kind of each field (``text?``); empty: any object.
        needed: fields that a rubric cannot do without, with the rubric's name.

    Raises:
        TaskError: names the field.
    """
    target = dict(raw)
    for name, kind in schema.items():
        if target.get(name) is None and kind.endswith("?"):
            continue
        if not _KINDS[kind.removesuffix("?")](target.get(name)) or name not in target:
            raise TaskError(
                "this field of the target does not fit",
                field=f"target.{name}",
                found=shorten_value(target.get(name)),
                allowed=kind,
            )
    if schema and (unknown := [name for name in target if name not in schema and name not in OWN_FIELDS]):
        raise TaskError(
            "the target has no such field",
            field=f"target.{unknown[0]}",
            allowed=", ".join(schema),
            remedy="remove it, or add it to env.target",
        )
    for name, rubric in needed.items():
        if target.get(name) is None:
            raise TaskError(
                f"the rubric {rubric} needs this field",
                field=f"target.{name}",
                found=f"the fields {', '.join(target) or '(none)'}",
                allowed="a value",
                remedy="give it in the row, or write a ? behind its source in the rubric",
            )
    turns = target.get(TURNS, [])
    if not _KINDS["texts"](turns) or not all(turn.strip() for turn in turns):
        raise TaskError(
            "these are no turns of a user",
            field=f"target.{TURNS}",
            found=shorten_value(turns),
            allowed="a list of texts, none blank",
        )
    return target
