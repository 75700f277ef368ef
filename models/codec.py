"""Strict JSON for frozen dataclasses: unknown, missing or mistyped fields and non-finite numbers are errors that name
the field.

``@record`` makes the dataclass; ``dump``/``load`` carry a schema version for the records that stand in files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from gavel.models.errors import InputError, RecordError, find_nearest, shorten_value
from gavel.models.records import record as record

T = TypeVar("T")


class FieldError(ValueError):
    """A field whose value does not fit, for a record's ``__post_init__``: ``decode`` names it as if it had found that
    itself.
    """

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field} is {found}; allowed: {allowed}")
        self.field, self.found, self.allowed = field, found, allowed


@cache
def _make_adapter(cls: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def to_json(value: object) -> bytes:
    """Encode dataclasses, mappings, sequences and scalars as compact JSON, fields in declared order."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def encode_canonical(value: object) -> bytes:
    """Encode with sorted keys: equal values give equal bytes, whatever the order of their keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def compute_digest(value: object) -> str:
    """Return ``sha256:<64 hex>`` over the canonical JSON of ``value``; bytes are hashed as they are."""
    data = value if isinstance(value, bytes) else encode_canonical(value)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def to_plain(value: object) -> Any:
    """Return ``value`` as plain JSON types: dataclasses become dicts, tuples lists."""
    return orjson.loads(to_json(value))


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A NaN or an infinity, and the dotted path it stands at."""

    path: str
    value: float


_FINITE = frozenset((str, bool, int, type(None)))


def find_non_finite(value: object) -> NonFinite | None:
    """Return the first NaN or infinity in plain mappings and sequences, or None: JSON has no such numbers, ``to_json``
    writes null.

    The usual case, none, is one quick pass (well below 0.1 µs a value).
    """
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind in _FINITE:
            continue
        if kind is dict:
            waiting.extend(item.values())
        elif kind is list or kind is tuple:
            waiting.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            return next(_iter_non_finite(value, ()))
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
    return None


def _iter_non_finite(value: object, path: tuple[str, ...]) -> Iterator[NonFinite]:
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield NonFinite(".".join(path), value)
    for name, part in parts:
        yield from _iter_non_finite(part, (*path, str(name)))


def _find_too_large(value: object) -> str | None:
    """Return the dotted path of an integer that JSON's 64 bits do not hold; without recursion, for any depth."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        parts: Iterable[tuple[Any, Any]] = ()
        if isinstance(item, Mapping):
            parts = item.items()
        elif isinstance(item, list | tuple):
            parts = enumerate(item)
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            return path
        waiting.extend((f"{path}.{name}" if path else str(name), part) for name, part in parts)
    return None


def decode(
    cls: type[T],
    value: object,
    *,
    where: str = "",
    prefix: str = "",
    error: type[InputError] = RecordError,
    parsed: bool = False,
) -> T:
    """Read plain JSON types (or JSON bytes) as ``cls``.

    Args:
        cls: a ``@record`` class, or any type pydantic knows.
        value: a mapping of plain JSON types, or the bytes of one JSON document.
        where: file and line, for the error.
        prefix: the dotted path of ``value`` in what the user wrote, for the error.
        error: the error class to raise.
        parsed: whether ``orjson`` made ``value`` of a line, which refuses numbers that are not finite; they are looked
            for otherwise, at a fifth of the cost of reading a run back.

    Raises:
        InputError: of class ``error``; names the first bad field, what was found and what is allowed, and counts the
            others.
    """
    try:
        data = value if isinstance(value, bytes) else to_json(value)
    except orjson.JSONEncodeError:
        if (place := _find_too_large(value)) is None:
            raise
        raise error(
            "this number is too large",
            where=where,
            field=".".join(part for part in (prefix, place) if part),
            found="an integer beyond 64 bits",
            allowed="-2^63 to 2^64 - 1",
        ) from None
    if not (parsed or isinstance(value, bytes)) and b"null" in data and (bad := find_non_finite(value)) is not None:
        raise error(
            "this number is not finite",
            where=where,
            field=".".join(part for part in (prefix, bad.path) if part),
            found=str(bad.value),
            allowed="a finite number",
        )
    try:
        return _make_adapter(cls).validate_json(data)  # type: ignore[arg-type, no-any-return]
    except ValidationError as failed:
        raise _explain_errors(cls, failed, where, prefix, error) from None


def _explain_errors(
    cls: type[Any], failed: ValidationError, where: str, prefix: str, error: type[InputError]
) -> InputError:
    first, *others = failed.errors(include_url=False)
    path = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    field = ".".join(part for part in (prefix, path) if part)
    if isinstance(cause := first.get("ctx", {}).get("error"), FieldError):
        field = ".".join(part for part in (field, cause.field) if part)
        return error(
            "this value does not fit", where=where, field=field, found=shorten_value(cause.found), allowed=cause.allowed
        )
    kind, more = first["type"], f" (and {len(others)} more)" if others else ""
    if kind in ("missing", "missing_argument"):
        return error(f"this field is missing{more}", where=where, field=field, remedy=f"add `{path}`")
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        names = tuple(field.name for field in fields(cls)) if len(first["loc"]) == 1 and is_dataclass(cls) else ()
        near = find_nearest(str(first["loc"][-1]), names)
        return error(
            f"there is no such field{more}",
            where=where,
            field=field,
            found=shorten_value(first["input"]),
            allowed=", ".join(names),
            remedy=f"did you mean `{near[0]}`?" if near else "remove it",
        )
    return error(
        f"this value does not fit{more}",
        where=where,
        field=field,
        found=shorten_value(first["input"]),
        allowed=first["msg"].removeprefix("Value error, ").removeprefix("Input should be "),
    )


def _is_branch(part: object) -> bool:
    """Tell whether a location part names a branch of a union, which a user never wrote."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool", "none") or "[" in part)


def dump(value: object) -> bytes:
    """Encode a record that stands in a file: its fields behind ``schema``, one line, no newline."""
    schema: str = value.SCHEMA  # type: ignore[attr-defined]
    return b'{"schema":"%s",%s' % (schema.encode(), to_json(value)[1:])


def load(
    cls: type[T],
    value: Mapping[str, Any],
    *,
    where: str = "",
    error: type[InputError] = RecordError,
    parsed: bool = False,
) -> T:
    """Read what ``dump`` wrote, after ``json.loads``; ``parsed`` as of ``decode``.

    Raises:
        InputError: of class ``error``, for another schema or version, or a field that does not fit.
    """
    wanted: str = cls.SCHEMA  # type: ignore[attr-defined]
    found = value.get("schema")
    if found != wanted:
        raise error(
            "this is not a record this version can read",
            where=where,
            field="schema",
            found=shorten_value(found),
            allowed=wanted,
            remedy="write it again with this version, or read it with the version that wrote it",
        )
    plain = {key: item for key, item in value.items() if key != "schema"}
    return decode(cls, plain, where=where, error=error, parsed=parsed)
