"""Sentences of one paragraph or list item: sentencex, and what it gets wrong put right.

The library says where a sentence may end; every such place is looked at again, because it cuts abbreviations with several full
stops and names such as ASP.NET, and ends a sentence where quoted speech goes on. Its lists of abbreviations hold ordinary words
(mich, otto, bien): before a capital letter, a letter without case or a digit they are kept out of its sight, and ours decide. It
never ends a sentence within brackets or at an ellipsis: these places are looked for here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise
from types import MappingProxyType

import regex
import sentencex

from gavel.envs.instruction_following.languages import END_MARKS, Language
from gavel.envs.instruction_following.stops import abbreviates
from gavel.envs.instruction_following.text import has_word

_REACH = 64
"""How far to either side the end of a sentence is looked at."""
_WINDOW, _SURE = 2048, 1536
"""The library's time grows with the square of what it is given: it gets so many characters at once, and what it says of those
beyond the second number, where a quotation may be cut, is asked again with what follows."""

_BREAK = re.compile(r"\n+")
_BLANK = re.compile(r"[^\S ]")
_MARKS = re.compile(f"[{re.escape(END_MARKS)}]")
_CLOSERS = "\"'”’»›」』）)］】]*_"
_QUOTES = "\"'“”„«»‹›「」『』’"
_PAIRS: Mapping[str, str] = MappingProxyType({"(": ")", "[": "]", "（": "）", "［": "］", "【": "】"})
_AFTER_BRACKET = " )]）］】\"'”’»*_"
_ELLIPSIS = re.compile(r"…\s+(?=[\"“«»„¿¡(\[]*([^\W\d_]))")
_WORD_STOP = regex.compile(r"[\p{L}\p{M}](?=\.[\"'”’»)]*\s+[\"“«»„¿¡(\[]*[\p{Lu}\p{Lt}\p{Lo}\p{Nd}])")
_DIGIT_START = regex.compile(r"(?<=[\p{L}\p{M}]\.\s)\p{Nd}")
_MASK = "ж"
"""Stands for the last letter of a word before a full stop, so that the library does not know the word; in capitals for a digit that
may begin a sentence, which in German never does to the library."""
_BRACKET_STOP = re.compile(rf"[{re.escape(END_MARKS)}][\"'”’»」』]?[)\]）］】][\"'”’»*_]*(\s*)")
_CLOSING = re.compile(r"[)\]）］】]")
_LETTER = r"(?:\p{L}\p{M}*)"
_DASH = regex.compile(r"[—–]\s?\p{Ll}")
_SHORT = 3
"""Characters, vowel signs included, of what can be part of an abbreviation where letters have no case."""


def sentences(text: str, language: Language) -> list[str]:
    """Return the sentences of a paragraph without Markdown in it; line breaks within it are blanks. Text without a word has none."""
    text = _BREAK.sub(" " if language.spaced else "", text).strip()
    if not has_word(text):
        return []
    if not _MARKS.search(text, 0, len(text) - 1):  # one sentence, whatever the language
        return [text]
    found = _cut(text, _ends(text, language))
    return [part for sentence in found for part in _within(sentence, language)]


def _cut(text: str, ends: Iterable[int]) -> list[str]:
    found, start = [], 0
    for end in ends:
        found.append(text[start:end].strip())
        start = end
    return found


def _within(sentence: str, language: Language) -> list[str]:
    """Return the sentences of one that is all in brackets."""
    if sentence[0] not in _PAIRS:
        return [sentence]
    inside = sentence[1:].rstrip(_AFTER_BRACKET)
    if sentence[1 + len(inside) :][:1] != _PAIRS[sentence[0]] or not _MARKS.search(inside, 0, len(inside) - 1):
        return [sentence]
    ends = list(_ends(inside, language))
    return _cut(sentence, [*(end + 1 for end in ends[:-1]), len(sentence)])


def _ends(text: str, language: Language) -> Iterator[int]:
    """Yield where sentences end, the end of the text included."""
    library, capitals, brackets = set(_library(text, language.sentencex)), _capitals(text), _bracket_stops(text)
    library.discard(len(text))
    places = sorted(library | capitals | brackets)
    start, previous, worded = 0, 0, False
    for place, following in pairwise([*places, len(text)]):
        worded = worded or has_word(text[previous:place])
        previous = place
        if not worded or not has_word(text[place:following]):
            continue
        if (
            place in capitals
            or (place in brackets and _is_bracketed(text, start, place))
            or (place in library and not _goes_on(text, start, place, language))
        ):
            yield place
            start, worded = place, False
    yield len(text)


def _library(text: str, code: str) -> Iterator[int]:
    """Yield where the library ends a sentence, in time that grows with the text. It fails at blanks of more than one byte."""
    text, position = text if text.isascii() else _BLANK.sub(" ", text), 0
    text = _WORD_STOP.sub(_MASK, _DIGIT_START.sub(_MASK.upper(), text))
    while position < len(text):
        window = text[position : position + _WINDOW]
        ends = list(accumulate(map(len, sentencex.segment(code, window))))
        if position + len(window) < len(text):
            ends = [end for end in ends if end <= _SURE] or ends[:-1]
        yield from (position + end for end in ends)
        position += ends[-1] if ends else len(window)


def _capitals(text: str) -> set[int]:
    """Return where a capital letter follows an ellipsis, never an end to the library."""
    return {stop.end() for stop in _ELLIPSIS.finditer(text) if stop[1].isupper()} if "…" in text else set()


def _bracket_stops(text: str) -> set[int]:
    """Return where a bracket closes behind the end of a sentence."""
    return {stop.end() for stop in _BRACKET_STOP.finditer(text)} if _CLOSING.search(text) else set()


def _is_bracketed(text: str, start: int, place: int) -> bool:
    """Tell whether what stands before a place is all in one pair of brackets, and something new follows."""
    opening = text[start : start + _REACH].lstrip()
    close = _PAIRS.get(opening[:1])
    if close is None or text[place].islower():
        return False
    first = text.find(close, start, place)
    if first < 0 or place - first > _REACH:
        return False
    return not text[first:place].strip(_AFTER_BRACKET) and any(map(str.isalpha, text[start:first]))


def _goes_on(text: str, start: int, place: int, language: Language) -> bool:
    """Tell whether the sentence from ``start`` goes on at a place where the library ends it."""
    before, after = text[max(start, place - _REACH) : place], text[place : place + _REACH]
    tail = before.rstrip()
    if tail[-1] in _CLOSERS:
        return tail.rstrip(_CLOSERS)[-1:] in END_MARKS and _speaks_on(text, start, place, tail[-1] in _QUOTES, language)
    if tail[-1] != ".":
        return _DASH.match(after) is not None  # ¿Vienes? —preguntó Ana.
    if len(tail) == len(before) and _is_glued(tail, after, language):
        return True
    words = tail[:-1].split()
    return bool(words) and abbreviates(words, tail, after, language)


def _speaks_on(text: str, start: int, place: int, quoted: bool, language: Language) -> bool:
    """Tell whether brackets or a quotation that have ended are part of a longer sentence; ``quoted``: a quotation mark closed them."""
    after = text[place : place + _REACH]
    if after.lstrip(" \"'“«")[:1].islower():
        return True
    if not text[place - 1].isspace() and after.startswith(language.speech or "\0"):
        return True
    if language.tells is None or not quoted:
        return False
    opens = text[start : start + _REACH].lstrip()[:1] in _QUOTES
    return opens and _tells(language.tells).match(after) is not None


@lru_cache
def _tells(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


def _is_glued(tail: str, after: str, language: Language) -> bool:
    """Tell whether a full stop stands within a name or an abbreviation (ASP.NET, a.C., c.-à-d.), no blank behind it."""
    follows = after.lstrip("-‐‑")[:1]
    if tail[-2:-1].isspace() or len(tail) == 1:  # .NET
        return follows.isalnum()
    last = regex.search(rf"{_LETTER}*\Z", tail[:-1])
    before = last[0] if last else ""
    if follows.isdigit() or (before[-1:] or tail[-2:-1]).isdigit():
        return follows.isalnum()
    if not follows.isalpha() or not before:
        return False
    if follows.isascii() or follows.upper() != follows.lower():
        return True
    return language.spaced and not language.joined and len(before) <= _SHORT


def end_marks(sentence: str) -> str:
    """Return the run of marks a sentence ends in, closing quotes, brackets and emoji aside; empty if it ends in none."""
    tail = sentence[-_REACH:]
    while tail and tail[-1] not in END_MARKS:
        if tail[-1].isalnum():
            return ""
        tail = tail[:-1]
    return tail[len(tail.rstrip(END_MARKS)) :]
