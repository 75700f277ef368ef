"""What an argument of an instruction may be: one small reader per kind of value, each with its description for errors and docs.

A reader turns what stands in a task into what a check uses (a relation's spelling variants become one, a fraction becomes a number) or
raises ``ValueError``, whose text says what is wrong. Nothing is coerced that could hide a mistake: a number in quotes is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import regex

from gavel.envs.instruction_following.text import composed, is_seen

AT_LEAST, EQUAL_TO, LESS_THAN = "at least", "equal to", "less than"
RELATIONS: Mapping[str, str] = MappingProxyType(
    {spelling: name for name in (AT_LEAST, EQUAL_TO, LESS_THAN) for spelling in (name, name.replace(" ", "_"))}
)
"""Each accepted spelling and what it means; there is no ``at most`` or ``more than`` in tasks of this form."""

LARGEST = 1_000_000_000
"""No reply comes near; larger numbers are mistakes."""

_NUMBER = regex.compile(r"\d{1,18}(?:\.\d{1,18})?|\.\d{1,18}", regex.ASCII)

_NO_VALUES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: ``allowed`` says in words what is accepted, ``read`` returns the value or raises ``ValueError``."""

    name: str
    allowed: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an instruction.

    ``values`` maps each listed value to its definition, where the argument has a list; with ``open`` other values are fine too.
    """

    name: str
    kind: Kind
    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)
    open: bool = False


def whole(minimum: int) -> Kind:
    """Return the kind of whole numbers from ``minimum`` on; ``true`` and ``2.0`` are none."""

    def read(value: Any) -> int:
        if type(value) is not int:
            raise ValueError("this is not a whole number")
        if not minimum <= value <= LARGEST:
            raise ValueError(f"this number is too {'small' if value < minimum else 'large'}")
        return value

    return Kind("whole number", f"a whole number, {minimum} or more", read)


def _relation(value: Any) -> str:
    if not isinstance(value, str) or value not in RELATIONS:
        raise ValueError("there is no such relation")
    return RELATIONS[value]


def _number(value: Any) -> float:
    if type(value) not in (int, float) or value != value:  # not a number
        raise ValueError("this is not a number")
    if not 0 <= value <= LARGEST:
        raise ValueError(f"this number is too {'small' if value < 0 else 'large'}")
    return float(value)


def _fraction(value: Any) -> float:
    if value == math.inf:
        return math.inf
    if type(value) in (int, float):
        return _number(value)
    if not isinstance(value, str):
        raise ValueError("this is not a fraction")
    if value.strip().lower() in ("inf", "infinity"):
        return math.inf
    above, slash, below = value.partition("/")
    parts = [above.strip(), below.strip()] if slash else [above.strip()]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError("this is not a fraction")
    return _divided(*(Fraction(part) for part in parts))


def _divided(above: Fraction, below: Fraction = Fraction(1)) -> float:
    if below == 0:
        raise ValueError("this fraction divides by zero")
    return float(above / below)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("this is not a text")
    if not is_seen(value):
        raise ValueError("this text is blank")
    return composed(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("this is not a list")
    if not value:
        raise ValueError("this list is empty")
    return tuple(_text(item) for item in value)


def _letter(value: Any) -> str:
    text = _text(value).strip()
    if len(regex.findall(r"\X", text)) != 1:
        raise ValueError("this is more than one letter")
    return text


def _levels(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("this is not a list")
    if not value:
        raise ValueError("this list is empty")
    return tuple(LIMIT.read(item) for item in value)


def _splitter(value: Any) -> str:
    text = _text(value).strip()
    if "#" in text or "*" in text:
        raise ValueError("the word must stand without its Markdown marks")
    return text


def _one_of(*values: str) -> Kind:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError("there is no such value")
        return value

    return Kind("choice", " | ".join(values), read)


COUNT = whole(0)
LIMIT = whole(1)
RELATION = Kind("relation", f"{AT_LEAST} | {EQUAL_TO} | {LESS_THAN} (or with underscores)", _relation)
NUMBER = Kind("number", "a number, 0 or more", _number)
FRACTION = Kind("fraction", 'a number, 0 or more, or a text such as "1/2", "0.5" or "inf"', _fraction)
TEXT = Kind("text", "a text that is not blank", _text)
TEXTS = Kind("texts", "a list of texts, at least one, none of them blank", _texts)
LETTER = Kind("letter", "one letter", _letter)
LEVELS = Kind("levels", "a list of whole numbers, at least one, each 1 or more", _levels)
SPLITTER = Kind("splitter", "a word without # and *", _splitter)


def choice(name: str, *values: str) -> Argument:
    """Return an argument that must be one of ``values``."""
    return Argument(name, _one_of(*values))


def defined(name: str, values: Mapping[str, str], *, open: bool = False) -> Argument:
    """Return an argument whose values have definitions; ``open``: any other text is accepted as well."""
    if open:
        return Argument(name, Kind("text", f"a text, such as {', '.join(values)}", _text), values, open=True)
    return Argument(name, _one_of(*values), values)
