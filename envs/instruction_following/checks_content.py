"""Checks of content a program can see: placeholders, postscripts, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.text import fold, folded, spans, visible
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, Verdict, counted

_BRACKETS = regex.compile(r"(?<![A-Za-z0-9_])!?[\[［]((?>[^\[\]［］\n]+))[\]］](?!\(|: (?:https?:|<))")
_BRACES = regex.compile(r"\{((?>[^{}\"':\n]+))\}")
_NO_NAME = regex.compile(r"[\s\d.,;:–—\-*†‡]*|[xX✓✔]|\^.*")
_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:٫٬]\p{Nd}+)*+")


def _placeholders(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    """Count what stands in brackets and could be filled in: no links, references by number, footnotes or check boxes."""
    text = document.markdown_without_code
    found = [match[1] for match in _BRACKETS.finditer(text) if match[0][0] != "!"]
    if document.language.braces:
        found += [match[1] for match in _BRACES.finditer(text)]
    return sum(1 for name in found if not _NO_NAME.fullmatch(name))


def _postscript(document: Document, arguments: Arguments) -> Verdict:
    marker = folded(arguments["postscript_marker"]).strip()
    last = fold(visible(document.text.rpartition("\n")[2])).lstrip(" \"'>(")
    body = last[len(marker) :] if last.startswith(marker) else ""
    passed = any(character.isalnum() for character in body)
    return Verdict(passed, "postscript found" if passed else "the last line is no postscript with this marker")


def _numbers(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    found = sum(1 for _ in _NUMBER.finditer(document.text))
    numerals = document.language.numerals
    if numerals and any(numeral in document.text for numeral in numerals):
        found += sum(
            all(letter in numerals for letter in document.prose[start:end]) for start, end in spans(document.prose, document.language)
        )
    return found


CONTENT: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "detectable_content:number_placeholders": counted(_placeholders, "num_placeholders", "placeholders"),
        "detectable_content:postscript": _postscript,
        "detectable_content:numeric_inclusion": counted(_numbers, "num_numbers", "numbers"),
    }
)
