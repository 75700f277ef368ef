"""What an argument of an instruction may be: one small reader per kind of value, each with its description for errors
and docs.

A reader turns what stands in a task into what a check uses (a relation's spelling variants become one, a fraction
becomes a number) or raises ``ValueError``, whose text says what is wrong. Nothing is coerced that could hide a mistake:
a number in quotes is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import regex

from gavel.envs.instruction_following.text import compose_text, is_seen

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
class ArgumentKind:
    """A kind of value: ``allowed`` says in words what is accepted, ``read`` returns the value or raises
    ``ValueError``.
    """

    name: str
    allowed: str
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an instruction.

    ``values`` maps each listed value to its definition, where the argument has a list; with ``open`` other values are
    fine too.
    """

    name: str
    kind: ArgumentKind
    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)
    open: bool = False


def make_whole(minimum: int) -> ArgumentKind:
    """Return the kind of whole numbers from ``minimum`` on; ``true`` and ``2.0`` are none."""

    def read_whole(value: Any) -> int:
        if type(value) is not int:
            raise ValueError("this is not a whole number")
        if not minimum <= value <= LARGEST:
            raise ValueError(f"this number is too {'small' if value < minimum else 'large'}")
        return value

    return ArgumentKind("whole number", f"a whole number, {minimum} or more", read_whole)


def _read_relation(value: Any) -> str:
    if not isinstance(value, str) or value not in RELATIONS:
        raise ValueError("there is no such relation")
    return RELATIONS[value]


def _read_number(value: Any) -> float:
    if type(value) not in (int, float) or value != value:  # not a number
        raise ValueError("this is not a number")
    if not 0 <= value <= LARGEST:
        raise ValueError(f"this number is too {'small' if value < 0 else 'large'}")
    return float(value)


def _read_fraction(value: Any) -> float:
    if value == math.inf:
        return math.inf
    if type(value) in (int, float):
        return _read_number(value)
    if not isinstance(value, str):
        raise ValueError("this is not a fraction")
    if value.strip().lower() in ("inf", "infinity"):
        return math.inf
    above, slash, below = value.partition("/")
    parts = [above.strip(), below.strip()] if slash else [above.strip()]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError("this is not a fraction")
    return _divide_parts(*(Fraction(part) for part in parts))


def _divide_parts(above: Fraction, below: Fraction = Fraction(1)) -> float:
    if below == 0:
        raise ValueError("this fraction divides by zero")
    return float(above / below)


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("this is not a text")
    if not is_seen(value):
        raise ValueError("this text is blank")
    return compose_text(value)


def _read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("this is not a list")
    if not value:
        raise ValueError("this list is empty")
    return tuple(_read_text(item) for item in value)


def _read_letter(value: Any) -> str:
    text = _read_text(value).strip()
    if len(regex.findall(r"\X", text)) != 1:
        raise ValueError("this is more than one letter")
    return text


def _read_levels(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("this is not a list")
    if not value:
        raise ValueError("this list is empty")
    return tuple(LIMIT.read(item) for item in value)


def _read_splitter(value: Any) -> str:
    text = _read_text(value).strip()
    if "#" in text or "*" in text:
        raise ValueError("the word must stand without its Markdown marks")
    return text


def _make_one_of(*values: str) -> ArgumentKind:
    def read_one_of(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError("there is no such value")
        return value

    return ArgumentKind("choice", " | ".join(values), read_one_of)


COUNT = make_whole(0)
LIMIT = make_whole(1)
RELATION = ArgumentKind("relation", f"{AT_LEAST} | {EQUAL_TO} | {LESS_THAN} (or with underscores)", _read_relation)
NUMBER = ArgumentKind("number", "a number, 0 or more", _read_number)
FRACTION = ArgumentKind("fraction", 'a number, 0 or more, or a text such as "1/2", "0.5" or "inf"', _read_fraction)
TEXT = ArgumentKind("text", "a text that is not blank", _read_text)
TEXTS = ArgumentKind("texts", "a list of texts, at least one, none of them blank", _read_texts)
LETTER = ArgumentKind("letter", "one letter", _read_letter)
LEVELS = ArgumentKind("levels", "a list of whole numbers, at least one, each 1 or more", _read_levels)
SPLITTER = ArgumentKind("splitter", "a word without # and *", _read_splitter)


def make_choice(name: str, *values: str) -> Argument:
    """Return an argument that must be one of ``values``."""
    return Argument(name, _make_one_of(*values))


def make_defined(name: str, values: Mapping[str, str], *, open: bool = False) -> Argument:
    """Return an argument whose values have definitions; ``open``: any other text is accepted as well."""
    if open:
        return Argument(
            name, ArgumentKind("text", f"a text, such as {', '.join(values)}", _read_text), values, open=True
        )
    return Argument(name, _make_one_of(*values), values)
