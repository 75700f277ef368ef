"""Every regular expression that meets text of a model on its way to a grade takes time in proportion to the text, whatever the text is.

The patterns are found by walking the modules, so that a new one is tried without anybody's doing; ``CONFIG_ONLY`` names the modules
whose patterns meet only what the user or a package wrote.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import regex

import gavel

FOLDERS = ("models", "judges", "envs.abstention", "envs.interfaces.http")
CONFIG_ONLY = (
    # configuration, file names, sources of Python, ids of rows, refusals of a server, logs of our own servers
    "gavel.models.service_check", "gavel.models.secrets", "gavel.models.pinned", "gavel.models.quirks", "gavel.models.vllm",
    "gavel.models.files", "gavel.models.embedded", "gavel.models.install", "gavel.models.request_form", "gavel.models.retry",
    "gavel.judges.template", "gavel.judges.assets", "gavel.envs.abstention.source",
)  # fmt: skip
SIZE = 3_000
"""Characters; the other measure is twice as long."""
FLOOR = 0.004
"""CPU seconds that a scan of ``2 * SIZE`` may take without being looked at: a quadratic scan takes far more."""
UNITS = (
    " ", "\n", "\t", "a", "A", "1", "a ", "A. ", "1. ", "1,", "1 ", "- ", "* ", "*", "**", "_", "`", "```", "~", "#",
    "# ", "> ", "<", "<a", "< ", "</", "[", "]", "[a", "](", "(", ")", "{", "}", "\"", "'", "\u201c", "\u201ca ",
    "\\", "\\boxed{", "|", "| a ", "||", "-", "--", "=", "_ ", ".", "..", ". ", "!", "?", ":", ": ", "::", ",", ", ",
    ";", "/", "&", "&a", "$", "$a", "@", "%", "\u200b", "\u200e", "\u0600", "\u05d0", "\xe9", "\u4e2d", "\u3002",
    "\u3042", "\ud55c", "\U0001f3f4", "\U0001f469\u200d", "http://", "a.b", "a@", "a-", "a'", "P.S. ", "x <",
    "<think>", "</think>", "verdict ", "[[yes", "\r", "\r\n", "\x00", "a\n", "\n\n", "\n ", "\n- ", "\n1. ", "\n# ",
    "\n> ", "\n|", "aB", "Aa ", "A A ", "0.", "1/", "\u0663", "\u0967", "III ", "I. ", "mark as ", "ignore ",
    "grade ", "<|", "<|a",
)  # fmt: skip
Pattern = Any


def patterns() -> Iterator[tuple[str, Pattern]]:
    seen: set[tuple[str, int]] = set()
    for folder in FOLDERS:
        package = importlib.import_module(f"gavel.{folder}")
        for found in pkgutil.walk_packages(package.__path__, f"gavel.{folder}."):
            if found.name.endswith("_main") or found.name.startswith(CONFIG_ONLY):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = importlib.import_module(found.name)
            except ImportError:  # what a trainer brings along, which is not installed everywhere
                continue
            for name, value in vars(module).items():
                for pattern in _patterns_in(value, 0):
                    key = (pattern.pattern, pattern.flags)
                    if isinstance(pattern.pattern, str) and key not in seen:
                        seen.add(key)
                        yield f"{found.name.removeprefix('gavel.')}:{name}", pattern


def _patterns_in(value: Any, depth: int) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern | regex.Pattern):
        yield value
    elif depth > 4 or isinstance(value, str | bytes | type):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _patterns_in(item, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _patterns_in(item, depth + 1)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _patterns_in(getattr(value, field.name, None), depth + 1)


def _seconds(pattern: Pattern, text: str) -> float:
    begun = time.process_time()
    for _ in pattern.finditer(text):
        pass
    pattern.match(text)
    pattern.fullmatch(text)
    return time.process_time() - begun


def _grows(pattern: Pattern, unit: str, end: str) -> float:
    """Return the ratio of the times for a text and one twice as long; 0 where both are too quick to matter."""
    size = SIZE // len(unit)
    text, twice = unit * size + end, unit * (2 * size) + end
    if _seconds(pattern, twice) < FLOOR:
        return 0.0
    best = 9.9
    for _ in range(5):
        short = min(_seconds(pattern, text) for _ in range(3))
        best = min(best, min(_seconds(pattern, twice) for _ in range(3)) / max(short, 1e-6))
        if best < 3:
            break
    return best


FOUND = list(patterns())


def test_the_walk_finds_the_patterns_of_every_folder() -> None:
    assert len(FOUND) > 30
    assert {name.partition(".")[0] for name, _ in FOUND} == {"models", "judges", "envs"}
    assert gavel.__name__ == "gavel"


def test_the_measure_sees_a_quadratic_pattern() -> None:
    assert _grows(re.compile(r"<\s*/?\s*x"), "\n", "<") == 0.0
    assert max(_grows(re.compile(r"\s+x"), unit, "y") for unit in (" ", "\n")) > 3


def own_units(pattern: Pattern) -> list[str]:
    """Return beginnings that are written in the pattern itself."""
    words = re.findall(r"[A-Za-z<>\[\]{}#*_`:.-]{2,12}", pattern.pattern)
    return [word + tail for word in dict.fromkeys(words[:6]) for tail in ("", " ")]


@pytest.mark.parametrize(("name", "pattern"), FOUND, ids=[name for name, _ in FOUND])
def test_a_pattern_is_linear_whatever_the_text(name: str, pattern: Pattern) -> None:
    slow = {}
    for unit in (*UNITS, *own_units(pattern)):
        for end in ("", "x"):
            if (ratio := _grows(pattern, unit, end)) >= 3:
                slow[unit, end] = round(ratio, 1)
    assert not slow, (name, pattern.pattern[:200], slow)
