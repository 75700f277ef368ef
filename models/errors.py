"""Errors a user can act on: each says where, what was found, what is allowed, and how to mend it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from gavel.models.secrets import mask_keys


class GavelError(Exception):
    """The base of every error meant for a user; the command prints it without a trace and exits with ``exit_code``."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class NextCommand:
    """A remedy that is another command: which one, ``text`` that says so to any caller, and what else would do. The
    command line puts the very command in the place of the text.
    """

    command: Literal["probe", "sweep"]
    text: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.text}{self.more}"


class InputError(GavelError, ValueError):
    """Bad input: a config key, a row of a file, an asset.

    Args:
        problem: one sentence, what is wrong.
        where: a file with its line (``tasks.jsonl:3``), or a config key's origin; empty if there is none.
        field: the field or config key, dotted (``target.question``); empty if the whole thing is wrong.
        found: what was there, already shortened for display.
        allowed: what would be accepted.
        remedy: what to do about it, as an instruction.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str = "",
        field: str = "",
        found: str = "",
        allowed: str = "",
        remedy: str | NextCommand = "",
    ) -> None:
        self.problem, self.where, self.field = problem, where, field
        self.found, self.allowed, self.remedy = found, allowed, remedy
        super().__init__(problem)

    def copy_with(self, **changes: Any) -> Self:
        """Return the same error with other parts, named as the arguments are."""
        parts = {name: getattr(self, name) for name in ("problem", "where", "field", "found", "allowed", "remedy")}
        return type(self)(**{**parts, **changes})

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        head = f"{place}: {self.problem}" if place else self.problem
        rows = (("found", self.found), ("allowed", self.allowed), ("fix", self.remedy))
        return mask_keys(make_visible("\n".join([head, *(f"  {name + ':':<9}{text}" for name, text in rows if text)])))

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions; workers send these across processes.
        return _rebuild_error, (type(self), self.problem, self.where, self.field, self.found, self.allowed, self.remedy)


def _rebuild_error(cls: type[InputError], problem: str, *rest: Any) -> InputError:
    return cls(problem, **dict(zip(("where", "field", "found", "allowed", "remedy"), rest, strict=True)))


class ConfigError(InputError):
    """A configuration that cannot be composed or does not fit together; raised before anything is started."""


class Findings(GavelError):
    """All that keeps something from being started, each an error of its own."""

    def __init__(self, findings: Sequence[GavelError]) -> None:
        self.findings = tuple(findings)
        super().__init__(findings)

    def __str__(self) -> str:
        head = f"{format_findings(len(self.findings))}; nothing was started:"
        return "\n\n".join((head, *map(str, self.findings)))


def format_findings(number: int) -> str:
    """Return ``1 finding``, ``4 findings``."""
    return f"{number} finding{'' if number == 1 else 's'}"


def drop_repeated(found: Iterable[GavelError]) -> list[GavelError]:
    """Return errors in their order, each once by what it says."""
    once: dict[str, GavelError] = {}
    for failed in found:
        once.setdefault(str(failed), failed)
    return list(once.values())


def locate_error(failed: GavelError, place: str) -> GavelError:
    """Return an error as found at a place, which is told before it."""
    if not isinstance(failed, InputError):
        return ConfigError(str(failed), where=place)
    return failed.copy_with(where=f"{place}: {failed.where}" if failed.where else place)


class RecordError(InputError):
    """A stored record that cannot be read: unknown schema version, missing or mistyped field."""


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal: C0 but tab and line feed, C1, and what reorders or breaks lines."""


def make_visible(text: str) -> str:
    r"""Return ``text`` with every character that could steer a terminal written out (``\x1b``), for text that is not
    ours.
    """
    if text.isprintable():
        return text
    return _CONTROLS.sub(_escape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def shorten_value(value: object, limit: int = 120) -> str:
    """Return ``repr(value)``, of a text the text itself in one line, cut to ``limit`` characters, for the ``found`` of
    an error.
    """
    text = (
        make_visible(value).replace("\n", "\\n").replace("\t", "\\t")
        if isinstance(value, str) and value.strip()
        else repr(value)
    )
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def find_nearest(name: str, choices: Iterable[str], count: int = 3) -> list[str]:
    """Return up to ``count`` of ``choices`` that look like ``name``, best first; empty if none does."""
    return difflib.get_close_matches(name, list(choices), n=count, cutoff=0.5)
