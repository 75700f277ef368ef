"""The words of a command line after the verb: ``group=choice``, ``key=value``, ``~key``; read one by one, checked
against the schema.

Values use Hydra's grammar (numbers, ``true``, ``null``, ``[a,b]``, ``{k: v}``, quotes), but a key that holds a text
takes the text as it stands, so that paths and ids with commas, brackets or only digits need no quotes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from gavel.launch.config.keys import Place
from gavel.models.errors import ConfigError, NextCommand, shorten_value

_WORD = re.compile(r"(?P<sign>~|\+{0,2})(?P<key>[^=\s]+?)(?:=(?P<value>.*))?", re.DOTALL)


_SWEEP = NextCommand("sweep", "for a run of each write -m before the words")
_SEVERAL = re.compile(r",|^(?:glob|choice|range|interval|shuffle|sort|tag)\(")


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """``group=choice`` or ``group@package=choice``; choice is None for ``null``."""

    group: str
    package: str | None
    choice: str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """``key=value``; the value is still the text the user wrote."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Removal:
    """``~key``."""

    key: str


def read_override(word: str, groups: tuple[str, ...]) -> GroupChoice | Setting | Removal:
    """Read one word. ``+`` and ``++`` before it mean nothing here: a key is known to the schema or it is refused.

    Raises:
        ConfigError: the word is not an override, or sets Hydra itself.
    """
    match = _WORD.fullmatch(word)
    if match is None or (match["value"] is None and match["sign"] != "~"):
        raise ConfigError(
            "this word is not KEY=VALUE",
            found=shorten_value(word),
            allowed="KEY=VALUE, GROUP=CHOICE, ~KEY",
            remedy="only the first word after the verb may stand alone: it is the run folder",
        )
    key, value = match["key"], match["value"]
    if key.split(".")[0].split("/")[0] == "hydra":
        raise ConfigError(
            "Hydra's own settings are not used", field=key, remedy="remove it; the run folder is run.dir=…"
        )
    if match["sign"] == "~":
        return Removal(key)
    group, _, package = key.partition("@")
    if group in groups and value is not None and _SEVERAL.search(value):
        raise ConfigError(
            "several choices where there can be one", field=key, found=shorten_value(value), remedy=_SWEEP
        )
    if group in groups:
        return GroupChoice(group, package or None, None if value in ("null", "") else value)
    return Setting(key, value)


def read_head(word: str) -> str:
    """Return the group or the topmost key that a word is about.

    Raises:
        ConfigError: the word is not an override.
    """
    read = read_override(word, ())
    key = read.group if isinstance(read, GroupChoice) else read.key
    return key.partition("@")[0].partition(".")[0]


def read_value(setting: Setting, place: Place) -> Any:
    """Return the value as plain Python types; ``${…}`` stays as it is.

    Raises:
        ConfigError: it is not written in the grammar, or means several values.
    """
    if setting.text == "null":
        return None
    if place.is_text or (place.is_text_or_list and not setting.text.startswith("[")):
        return _unquote_text(setting.text)
    try:
        parsed = OverridesParser.create().parse_rule(f"k={setting.text}", "override")
    except HydraException:
        raise ConfigError(
            "this value cannot be read",
            field=setting.key,
            found=shorten_value(setting.text),
            allowed="a number, true, false, null, a text, [a,b], {key: value}",
            remedy="put a text with special characters in quotes",
        ) from None
    if parsed.is_sweep_override():
        raise ConfigError(
            "several values where there can be one",
            field=setting.key,
            found=shorten_value(setting.text),
            remedy=replace(_SWEEP, more=f"; for a list write {shlex.quote(f'{setting.key}=[{setting.text}]')}"),
        )
    return parsed.value()


def _unquote_text(text: str) -> str:
    quote = text[:1]
    if len(text) >= 2 and quote in "'\"" and text.endswith(quote):
        return text[1:-1].replace(f"\\{quote}", quote)
    return text
