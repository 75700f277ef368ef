"""Checks of content a program can see: placeholders, postscripts, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import Language
from gavel.envs.instruction_following.text import fold, folded, spans, visible
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, Verdict, counted

_BRACKETS = regex.compile(r"(?<![A-Za-z0-9_])!?[\[［]((?>[^\[\]［］\n]+))[\]］](?!\(|: (?:https?:|<))")
_BRACES = regex.compile(r"\{((?>[^{}\"':\n]+))\}")
_REFERENCE = regex.compile(r"\[(?>[^\[\]\n]+)\]\[(?>[^\[\]\n]*)\]")
_WORD = regex.compile(r"\w")
_NO_NAME = regex.compile(r"[\s\d.,;:–—\-*†‡]*|[xX✓✔]|\^.*")
_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:٫٬]\p{Nd}+)*+")


def _placeholders(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    """Count what stands in brackets and could be filled in: no links, references by number, footnotes or check boxes."""
    text = _REFERENCE.sub(" ", document.markdown_without_code)
    found = [match[1] for match in _BRACKETS.finditer(text) if match[0][0] != "!"]
    if document.language.braces:
        found += [match[1] for match in _BRACES.finditer(text)]
    return sum(1 for name in found if not _NO_NAME.fullmatch(name))


def _postscript(document: Document, arguments: Arguments) -> Verdict:
    marker = folded(arguments["postscript_marker"]).strip()
    last = fold(visible(_last_line(document))).lstrip(" \"'>(")
    body = last[len(marker) :] if last.startswith(marker) else ""
    if _WORD.match(marker[-1]) and _WORD.match(body):  # Note is not the marker of Notebook
        body = ""
    passed = any(character.isalnum() for character in body)
    return Verdict(passed, "postscript found" if passed else "the last line is no postscript with this marker")


def _last_line(document: Document) -> str:
    """Return the last line that is neither blank nor a rule."""
    return next((line for line in reversed(document.lines) if line.strip("-*_ \t")), "")


def _numbers(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    found = sum(1 for _ in _NUMBER.finditer(document.text))
    numerals = document.language.numerals
    if numerals and any(numeral in document.text for numeral in numerals):
        found += _numeral_runs(document.prose, document.language)
    return found


def _numeral_runs(text: str, language: Language) -> int:
    """Count the numbers written in numerals: words of numerals only, those in a row as one, none that goes on with digits (3万)."""
    runs, inside = 0, False
    for start, end in spans(text, language):
        is_numeral = all(letter in language.numerals for letter in text[start:end])
        runs += is_numeral and not inside
        inside = is_numeral or text[end - 1].isdigit()
    return runs


CONTENT: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "detectable_content:number_placeholders": counted(_placeholders, "num_placeholders", "placeholders"),
        "detectable_content:postscript": _postscript,
        "detectable_content:numeric_inclusion": counted(_numbers, "num_numbers", "numbers"),
    }
)
