"""The keys a config may have, read off the dataclasses of the schema: what a dotted key means, and which one was meant.

A mapping of dataclasses (``services``, ``rubrics``) takes new names. A ``Mapping[str, Any]`` that stands directly in a
verb's config (``env``, ``reward``, ``source``) holds the options of what it names, so it takes only the keys that the
chosen group file has; one deeper down (``engine_args``) takes any key.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, cast

from gavel.models.errors import ConfigError, shorten_value

_UNREAD = re.compile(r"(?:judge|services\.[^.]+)\.sampling(?:\.|$)")
"""Keys that no code reads; they are in the schema because a policy has them, and no advice may name them."""

_MEANT = {
    "extra": "extra_body",
    "body": "extra_body",
    "enable_thinking": "extra_body",
    "thinking": "extra_body",
    "seed": "extra_body",
    "stop": "extra_body",
    "api_version": "query",
    "api-version": "query",
    "max_completion_tokens": "max_tokens_field",
    "json_schema": "response_format",
    "structured_outputs": "response_format",
    "auth_header": "key_header",
}
"""Words that people write for keys of a service."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a config: the type it must have, what is there (plain), and whether it lies among the options of a
    group file.
    """

    annotation: Any
    node: Any
    depth: int = 0
    options: bool = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """The keys allowed below; None if any is, empty if this place has none."""
        holder = _find_holder(self.annotation)
        if is_dataclass(holder):
            return tuple(field.name for field in fields(holder))
        if holder is None and self.annotation is not Any:
            return ()
        if self.options and self.node is not None:
            return tuple(self.node) or None if isinstance(self.node, Mapping) else ()
        return None

    def get_child(self, name: str) -> Place:
        """Return the place one key down, which must be an allowed one."""
        holder = _find_holder(self.annotation)
        node = self.node.get(name) if isinstance(self.node, Mapping) else None
        if is_dataclass(holder):
            annotation = _load_hints(cast("Hashable", holder))[name]
            options = self.depth == 0 and _find_value_type(annotation) is Any
        else:
            annotation, options = _find_value_type(self.annotation), self.options
        return Place(annotation, node, self.depth + 1, options)

    @property
    def may_be_none(self) -> bool:
        """Whether null stands for something here."""
        return self.annotation is Any or type(None) in typing.get_args(self.annotation)

    @property
    def is_text(self) -> bool:
        """Whether a value here is a text whatever it looks like (``17`` is then "17")."""
        return _list_alternatives(self.annotation) == (str,)

    @property
    def is_text_or_list(self) -> bool:
        """Whether a value here is one text or a list of them."""
        return set(_list_alternatives(self.annotation)) == {str, tuple[str, ...]}


def find_place(schema: type[Any], key: str, tree: Mapping[str, Any]) -> Place:
    """Return the place of a dotted key.

    Args:
        schema: the dataclass of the verb's config.
        key: the key as the user wrote it.
        tree: what is composed so far, as plain mappings.

    Raises:
        ConfigError: there is no such key; names the nearest ones.
    """
    place = Place(schema, tree)
    for depth, part in enumerate(key.split(".")):
        names = place.names
        if names is not None and part not in names:
            raise _make_unknown_key(schema, tree, key, depth, names)
        place = place.get_child(part)
    return place


def check_keys(schema: type[Any], tree: Mapping[str, Any]) -> None:
    """Refuse a key the schema does not know, wherever in a composed config.

    Raises:
        ConfigError: names the first such key and the nearest ones.
    """
    for key in _iter_keys(tree):
        find_place(schema, key, tree)


def list_known_keys(schema: type[Any], tree: Mapping[str, Any]) -> list[str]:
    """Return every dotted key of a schema; under mappings those that ``tree`` has."""
    return list(_walk_keys(Place(schema, tree), ""))


def _walk_keys(place: Place, prefix: str) -> Iterator[str]:
    names = place.names
    if names is None:
        names = tuple(place.node) if isinstance(place.node, Mapping) else ()
    for name in names:
        yield prefix + name
        yield from _walk_keys(place.get_child(name), f"{prefix}{name}.")


def _iter_keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _iter_keys(value, f"{prefix}{name}.")


def _make_unknown_key(
    schema: type[Any], tree: Mapping[str, Any], key: str, depth: int, names: tuple[str, ...]
) -> ConfigError:
    parts = key.split(".")
    above = ".".join(parts[:depth])
    bad = ".".join(parts[: depth + 1])
    here = depth == len(parts) - 1
    known = [name for name in list_known_keys(schema, tree) if not _UNREAD.match(name)]
    near = suggest_keys(key, known, [f"{above}.{name}" if above else name for name in names] if here else ())
    if (meant := _MEANT.get(_get_last_part(key))) is not None:
        beside = tuple(name for name in known if name in (f"judge.{meant}", f"{above}.{meant}"))
        near = list(dict.fromkeys((*beside, *near)))[:3]
    if not names and above:
        return ConfigError(
            f"`{above}` is a single value and has no keys below it",
            field=key,
            remedy=f"set {above}=… itself" + _format_suggestions(near),
        )
    return ConfigError(
        "there is no such key",
        field=bad,
        allowed=shorten_value((f"{above}: " if above else "") + ", ".join(names), 600),
        remedy=f"did you mean {_format_names(near)}?" if near else "remove it, or see `gavel VERB --help`",
    )


def suggest_keys(key: str, known: Iterable[str], siblings: Iterable[str] = ()) -> list[str]:
    """Return up to three known keys that may have been meant: the most alike beside it, else those that end in the same
    word, else those alike as a whole, else those that end in a word alike; the most alike first."""
    last = _get_last_part(key)
    beside = {_get_last_part(name): name for name in siblings}
    if near := difflib.get_close_matches(last, beside, n=2, cutoff=0.6):
        return [beside[name] for name in near]
    known = [name for name in known if not key.startswith(f"{name}.")]
    same = [name for name in known if _get_last_part(name) == last]
    found = difflib.get_close_matches(key, same, cutoff=0.0) or difflib.get_close_matches(key, known, cutoff=0.7)
    words = difflib.get_close_matches(last, {_get_last_part(name) for name in known}, n=1, cutoff=0.8)
    return (found or [name for name in known if _get_last_part(name) in words])[:3]


def _get_last_part(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _format_names(names: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _format_suggestions(near: list[str]) -> str:
    return f", or did you mean {_format_names(near)}?" if near else ""


@cache
def _load_hints(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _list_alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union without None, or the annotation itself."""
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if union else (annotation,)
    return tuple(part for part in parts if part is not type(None))


def _find_holder(annotation: Any) -> Any:
    """Return the member of a union that has keys (a dataclass, a mapping), or None."""
    return next(
        (part for part in _list_alternatives(annotation) if is_dataclass(part) or typing.get_origin(part) is Mapping),
        None,
    )


def _find_value_type(annotation: Any) -> Any:
    """Return the type of a mapping's values; Any for what has none."""
    holder = _find_holder(annotation)
    return typing.get_args(holder)[1] if typing.get_origin(holder) is Mapping else (Any if annotation is Any else None)
