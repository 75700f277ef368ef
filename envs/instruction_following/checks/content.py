"""Checks of content a program can see: placeholders, postscripts, numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import Language
from gavel.envs.instruction_following.text import NUMBER, extract_visible, find_spans, fold_phrase, fold_text
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, CheckVerdict, make_count_check

_BRACKETS = regex.compile(r"(?<![A-Za-z0-9_])!?[\[［]((?>[^\[\]［］\n]+))[\]］](?!\(|: (?:https?:|<))")
_BRACES = regex.compile(r"\{((?>[^{}\"':\n]+))\}")
_REFERENCE = regex.compile(r"\[(?>[^\[\]\n]+)\]\[(?>[^\[\]\n]*)\]")
_WORD = regex.compile(r"\w")
_BEFORE = regex.compile(r"\A[^\w\[<]++")
_POSTSCRIPT = regex.compile(r"\W{0,4}(?:p\.?\s?){1,4}s\.?(?!\w)")
_ITEM = regex.compile(r"[-*+•◦–—・]|\p{Nd}{1,3}[.)、]")
_NO_NAME = regex.compile(
    r"[\s\d.,;:…–—\-*†‡]*|[xX✓✔]|\^.*|![A-Za-z]+[+-]?|-?[\d.]+(?:pt|em|ex|cm|mm)|[^()]*\).*"
    r"|(?i:sic!?|(?:citation|clarification) needed|emphasis (?:added|mine)|(?:ibid|op\. "
    r"cit)\b.*|(?:arxiv|doi|isbn|pmid)\b.*)"
)
_CITATION = regex.compile(
    r"(?:(?i:see|cf\.|e\.g\.,?|vgl\.|siehe|voir|véase|vedi|ver) )?"
    r"(?:\p{Lu}[\p{L}'’.&,\- ]{0,80}|\d{1,3}[,;: ]{1,3})(?:,? (?:19|20)\d{2}[a-z]?|,? pp?\. ?\d+).{0,60}"
)
"""Author and year, or a reference with its page: [Smith et al., 2020], [12, p. 5]."""
_DISPLAY_MATH = regex.compile(r"\\\[.*?\\\]", regex.DOTALL)
_DOLLAR_MATH = regex.compile(r"\$\$(?>[^$]+)\$\$")
_INLINE_MATH = regex.compile(r"\\\((?>[^()\\\n]|\\(?!\)))*\\\)|(?<![\\$\w])\$(?=[^\s$])(?>[^$\n]*)(?<=[^\s$])\$(?!\d)")
_IS_MATH = regex.compile(r"[\\^_=+<>∑∫√≤≥×·]")
_LONG_WORD = regex.compile(r"\p{L}\p{L}")
_WORDS = regex.compile(r"\p{L}{2,}")
_MOST_WORDS = 4
"""Words from which on a formula that shows no operator is prose."""


def _count_placeholders(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    """Count what stands in brackets and could be filled in: no links, references, citations, footnotes, check boxes or
    mathematics.
    """
    text = document.markdown_without_code
    text = _strip_math(_REFERENCE.sub(" ", text) if "][" in text else text)
    found = [match[1] for match in _BRACKETS.finditer(text) if match[0][0] != "!"]
    if document.language.braces and "{" in text:
        found += [match[1] for match in _BRACES.finditer(text)]
    return sum(1 for name in found if not _NO_NAME.fullmatch(name) and not _CITATION.fullmatch(name))


def _strip_math(text: str) -> str:
    """Drop mathematics: ``\\[ … \\]``, ``$$ … $$``, and what reads as such between ``\\( \\)`` or dollars (prices do
    not).
    """
    if "\\" not in text and "$" not in text:
        return text
    end = text.rfind("\\]") + 2  # behind the last one that closes, each that opens would be looked at up to the end
    text = _DISPLAY_MATH.sub(_drop_math, text[:end]) + text[end:]
    return _INLINE_MATH.sub(_drop_math, _DOLLAR_MATH.sub(_drop_math, text))


def _drop_math(found: regex.Match[str]) -> str:
    display = found[0].startswith(("\\[", "$$"))
    inside = found[0][2:-2] if found[0][0] == "\\" or display else found[0][1:-1]
    if _IS_MATH.search(inside) or not _LONG_WORD.search(inside):
        return " "
    spaced = display and (found[0][0] == "$" or (inside[:1].isspace() and inside[-1:].isspace()))
    return " " if spaced and len(_WORDS.findall(inside)) <= _MOST_WORDS else found[0]


def _check_postscript(document: Document, arguments: Arguments) -> CheckVerdict:
    passed = _is_postscript_last(
        _split_parts(document.lines), fold_phrase(extract_visible(arguments["postscript_marker"])).strip()
    )
    return CheckVerdict(
        passed, "postscript found" if passed else "the reply does not end in a postscript with this marker"
    )


def _is_postscript_last(parts: Iterator[list[str]], marker: str) -> bool:
    """Whether the last part of a reply, which comes first, is a postscript, from a line that begins with the marker on.

    A list below belongs to it, and so do further postscripts, and the one part after a marker that stands alone.
    """
    below: list[str] = []
    part = next(parts, None)
    while part is not None:
        for number, line in enumerate(part):
            body = _read_body(line, marker)
            if body is not None:
                said = (body, *part[number + 1 :], *below)
                return any(character.isalnum() for text in said for character in text)
        above = next(parts, None)
        alone = above is not None and _is_bare(above[-1], marker)
        if not (alone or _POSTSCRIPT.match(part[0]) or all(_ITEM.match(line) for line in part)):
            return False
        below += part
        part = above
    return False


def _read_body(line: str, marker: str) -> str | None:
    """Return what follows the marker on a line; None where the line does not begin with it (Note is not the marker of
    Notebook).
    """
    if _WORD.match(marker):
        line = _BEFORE.sub("", line, count=1)
    if not line.startswith(marker):
        return None
    body = line[len(marker) :]
    return None if _WORD.match(marker[-1]) and _WORD.match(body) else body


def _is_bare(line: str, marker: str) -> bool:
    body = _read_body(line, marker)
    return body is not None and not any(character.isalnum() for character in body)


def _split_parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines between blank lines, as they are compared, the last part first; rules are left out."""
    part: list[str] = []
    for line in reversed(lines):
        if line.strip("-*_ \t"):
            part.append(fold_text(extract_visible(line)).lstrip(" \"'>(\t"))
        elif not line.strip() and part:
            yield part[::-1]
            part = []
    if part:
        yield part[::-1]


def _count_numbers(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    found = sum(1 for _ in NUMBER.finditer(document.text))
    numerals = document.language.numerals
    if numerals and any(numeral in document.text for numeral in numerals):
        found += _count_numeral_runs(document.prose, document.language)
    return found


def _count_numeral_runs(text: str, language: Language) -> int:
    """Count the numbers written in numerals: words of numerals only, those in a row as one, none that goes on with
    digits (3万).
    """
    runs, inside = 0, False
    for start, end in find_spans(text, language):
        is_numeral = all(letter in language.numerals for letter in text[start:end])
        runs += is_numeral and not inside
        inside = is_numeral or text[end - 1].isdigit()
    return runs


CONTENT: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "detectable_content:number_placeholders": make_count_check(
            _count_placeholders, "num_placeholders", "placeholders"
        ),
        "detectable_content:postscript": _check_postscript,
        "detectable_content:numeric_inclusion": make_count_check(_count_numbers, "num_numbers", "numbers"),
    }
)
