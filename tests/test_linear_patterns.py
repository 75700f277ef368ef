"""Every regular expression that meets text of a model on its way to a grade takes time in proportion to the text,
whatever the text is.

The patterns are found by walking the modules, so that a new one is tried without anybody's doing; ``CONFIG_ONLY`` names
the modules whose patterns meet only what the user or a package wrote.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import regex

import gavel

FOLDERS = ("models", "judges", "envs", "launch")
CONFIG_ONLY = (
    # configuration, file names, sources of Python, logs of our own servers
    "gavel.models.service_check", "gavel.models.secrets", "gavel.models.pinned", "gavel.models.calls.quirks", "gavel.models.vllm",  # noqa: E501
    "gavel.models.files", "gavel.models.vllm.embedded", "gavel.models.install", "gavel.judges.rubrics.template", "gavel.judges.assets",  # noqa: E501
    "gavel.launch.config.literals", "gavel.launch.rollout.deadline", "gavel.launch.compose.overrides", "gavel.launch.config.keys", "gavel.launch.training",  # noqa: E501
)  # fmt: skip
SIZE = 800
"""Characters; the other measure is twice as long. What looks slow is measured again at ``LARGER``."""
LARGER = 4_000
FLOOR = 0.0015
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
                for place, pattern in _patterns_in(value, f"{found.name}:{name}", 0):
                    key = (pattern.pattern, pattern.flags)
                    if isinstance(pattern.pattern, str) and key not in seen:
                        seen.add(key)
                        yield place.removeprefix("gavel."), pattern


def _patterns_in(value: Any, place: str, depth: int) -> Iterator[tuple[str, Pattern]]:
    """Yield each pattern with the module and the name it is used by: that of a field, where it is one's value."""
    if isinstance(value, re.Pattern | regex.Pattern):
        yield place, value
    elif depth > 4 or isinstance(value, str | bytes | type):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _patterns_in(item, place, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _patterns_in(item, place, depth + 1)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            home = f"{type(value).__module__}:{field.name}" if type(value).__module__.startswith("gavel.") else place
            yield from _patterns_in(getattr(value, field.name, None), home, depth + 1)


def is_anchored(source: str, name: str) -> bool:
    """Tell whether a module only ever matches a pattern at one place (``NAME.match``, ``NAME.fullmatch``): then no scan
    repeats it.
    """
    source = re.sub(r"(?m)^from .*$", "", source)
    uses = re.findall(rf"(?<!\")\b{re.escape(name)}\b(?![ ]*(?::|=[^=]))(\.\w+)?", source)
    return bool(uses) and set(uses) <= {".match", ".fullmatch"}


def _seconds(pattern: Pattern, text: str, *, anchored: bool = False) -> float:
    begun = time.process_time()
    for _ in () if anchored else pattern.finditer(text):
        pass
    pattern.match(text)
    pattern.fullmatch(text)
    return time.process_time() - begun


def _grows(pattern: Pattern, unit: str, end: str, *, anchored: bool = False) -> float:
    """Return the ratio of the times for a text and one twice as long; 0 where both are too quick to matter."""
    if _seconds(pattern, unit * (2 * SIZE // len(unit)) + end, anchored=anchored) < FLOOR:
        return 0.0
    ratio = math.inf
    for size in (SIZE, LARGER, LARGER):  # what another process takes of the cache looks like growth, but not each time
        ratio = min(ratio, _ratio(pattern, unit, end, size // len(unit), anchored))
        if ratio < 3:
            break
    return ratio


def _ratio(pattern: Pattern, unit: str, end: str, count: int, anchored: bool) -> float:
    short, long = (
        min(_seconds(pattern, unit * times + end, anchored=anchored) for _ in range(3)) for times in (count, 2 * count)
    )
    return long / max(short, 1e-6)


FOUND = list(patterns())


def test_the_walk_finds_the_patterns_of_every_folder() -> None:
    assert len(FOUND) > 30
    assert {name.partition(".")[0] for name, _ in FOUND} == {"models", "judges", "envs", "launch"}
    assert gavel.__name__ == "gavel"


def test_the_measure_sees_a_quadratic_pattern() -> None:
    assert _grows(re.compile(r"<\s*/?\s*x"), "\n", "<") == 0.0
    assert max(_grows(re.compile(r"\s+x"), unit, "y") for unit in (" ", "\n")) > 3


def test_a_pattern_that_only_matches_at_one_place_is_told_by_its_uses() -> None:
    assert is_anchored("_A = re.compile('a+x')\n_A.match(text)\n_A.fullmatch(text)", "_A")
    for use in ("_A.search(text)", "_A.match(text) or _A.sub('', text)", "strip(_A, text)", ""):
        assert not is_anchored(f"_A: Pattern = re.compile('a+x')\n{use}", "_A")


def own_units(pattern: Pattern) -> list[str]:
    """Return beginnings that are written in the pattern itself."""
    words = re.findall(r"[A-Za-z<>\[\]{}#*_`:.-]{2,12}", pattern.pattern)
    return [word + tail for word in dict.fromkeys(words[:6]) for tail in ("", " ")]


@pytest.mark.parametrize(("name", "pattern"), FOUND, ids=[name for name, _ in FOUND])
def test_a_pattern_is_linear_whatever_the_text(name: str, pattern: Pattern) -> None:
    module, _, value = name.partition(":")
    anchored = is_anchored(inspect.getsource(importlib.import_module(f"gavel.{module}")), value)
    for unit in (*UNITS, *own_units(pattern)):
        for end in ("", "x"):
            ratio = _grows(pattern, unit, end, anchored=anchored)
            assert ratio < 3, (name, pattern.pattern[:200], unit, end, round(ratio, 1))
