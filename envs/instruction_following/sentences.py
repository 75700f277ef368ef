"""Sentences of one paragraph or list item: sentencex, and what it gets wrong put right.

The library says where a sentence may end; every such place is looked at again, because it cuts abbreviations with
several full stops and names such as ASP.NET, and ends a sentence where quoted speech goes on. Its lists of
abbreviations hold ordinary words (mich, otto, bien): words before a full stop are kept out of its sight, and ours
decide; so is what opens brackets or a quotation, within which it ends no sentence. It never ends one at an ellipsis
either: these places are looked for here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from types import MappingProxyType

import regex
import sentencex

from gavel.envs.instruction_following.languages import END_MARKS, Language
from gavel.envs.instruction_following.stops import is_abbreviation, is_ordinary
from gavel.envs.instruction_following.text import begins_seen, has_word

_ASCII_MARKS = ".!?"
_PLAIN_BREAK = re.compile(r" (?=[A-Z])(?<=[.!?] )")
_GLUED_STOP = re.compile(r"\.(?<=[A-Za-z]\.)[A-Za-z]")
_DOTTED_WORD = re.compile(r"[A-Za-z]+(?:\.[A-Za-z]+)*")
_LOOSE_APOSTROPHE = re.compile(r"'(?:(?<![A-Za-z]')|(?![A-Za-z]))")

_REACH = 64
"""How far to either side the end of a sentence is looked at."""
_LONG = 1024
"""How far back it is looked for what opened the brackets or the quotation that a sentence ends in."""
_WINDOW, _SURE = 2048, 1536
"""The library's time grows with the square of what it is given: it gets so many characters at once, and what it says of
those beyond the second number, where a quotation may be cut, is asked again with what follows."""

_BREAK = re.compile(r"\n+")
_BLANK = re.compile(r"[^\S ]")
_MARKS = re.compile(f"[{re.escape(END_MARKS)}]")
_CLOSERS = "\"'”’»›」』》〉）)］】]*_¹²³⁰⁴⁵⁶⁷⁸⁹†‡"
_QUOTES = "\"'“”„«»‹›「」『』’"
_PAIRS: Mapping[str, str] = MappingProxyType({"(": ")", "[": "]", "（": "）", "［": "］", "【": "】"})
_AFTER_BRACKET = " )]）］】\"'”’»*_"
_ELLIPSIS = re.compile(r"…\s+(?=[\"“«»„¿¡(\[]*([^\W\d_]))")
_WORD_STOP = regex.compile(r"\.(?<=[\p{L}\p{M}\p{Nd}].)(?=[\"'”’»)]*\s+[\"“«»„¿¡(\[]*[\p{L}\p{Nd}])")
_SMALL_START = regex.compile(r"((?:\.(?<=[\p{L}\p{M}\p{Nd}]\.)|[!?])\s)[\p{Nd}\p{Ll}]")
_WANTS_CAPITALS = "de"
_MASK = "ж"
"""Stands for the last letter or digit before a full stop, so that the library does not know the word; in capitals for
what opens brackets or a quotation, within which it would end no sentence, and in German for a digit or a small letter,
which begins none to it."""
_SHOUTED = tuple((word, f"{word[:-2]}{_MASK}{word[-1]}") for word in ("Yum!", "Yum?", "Yahoo?"))
_BRACKET_STOP = re.compile(rf"[{re.escape(END_MARKS)}][\"'”’»」』]?[)\]）］】][\"'”’»*_]*(\s*)")
_CLOSING = re.compile(r"[)\]）］】]")
_ENCLOSING = re.compile(r"[\"'“”„«»‹›‘‚「『《〈（(\[［【]")
_OPENING = regex.compile(
    r"(?<![\w.!?…。！？।؟»”\"'’])[\"'“„«»‹›‘‚](?=[\w¿¡(\[…])|(?<=[\p{Han}\p{Hiragana}\p{Katakana}])[“‘](?=\w)|[«‹](?=\s[\w¿¡(…])"
    r"|[「『（(\[［【]|[《〈](?=[^》〉]{0,200}[。｡])"
)
_OPENED = re.compile(r"[\"“„«‹「『]|(?<!\w)['‘]\w")
_CLOSED = str.maketrans({'"': "”", "'": "’", **dict.fromkeys(")]）］】」』", "”")})
_NOTE = re.compile(r"(?<=[.!?…。！？।؟])[¹²³⁰⁴-⁹†‡]+")
_LETTER = r"(?:\p{L}\p{M}*)"
_DASH = regex.compile(r"[—–]\s?\p{Ll}")
_SHORT = 3
"""Characters, vowel signs included, of what can be part of an abbreviation where letters have no case."""


def split_sentences(text: str, language: Language) -> list[str]:
    """Return the sentences of a paragraph without Markdown in it; line breaks within it are blanks.

    Text without a word has none.
    """
    if "\n" in text:
        text = _BREAK.sub(" " if language.spaced else "", text)
    text = text.strip()
    if not (begins_seen(text) or has_word(text)):
        return []
    if language.cased and text.isascii() and (plain := _split_plain(text, language)) is not None:
        return plain
    if not _MARKS.search(text, 0, len(text) - 1):  # one sentence, whatever the language
        return [text]
    return _cut_text(text, _find_ends(text, language))


def _cut_text(text: str, ends: Iterable[int]) -> list[str]:
    found, start = [], 0
    for end in ends:
        found.append(text[start:end].strip())
        start = end
    return found


def _split_plain(text: str, language: Language) -> list[str] | None:
    """Return the sentences where every mark but the last stands behind a word and before a capital, or between two
    letters (P.S., U.S.), as most do; None elsewhere.
    """
    body = text.rstrip(_ASCII_MARKS)
    marks = body.count(".") + body.count("!") + body.count("?")
    if not marks:
        return [text]
    if '"' in text or len(text) > _WINDOW or "Yahoo!" in text or ("'" in text and _LOOSE_APOSTROPHE.search(text)):
        return None
    found = _PLAIN_BREAK.split(text)
    if len(found) != marks + 1 and len(found) + len(_GLUED_STOP.findall(body)) != marks + 1:
        return None
    going_on: list[int] = []
    for place, one in enumerate(found[:-1]):
        word = one[one.rfind(" ") + 1 : -1]
        if not (is_ordinary(word, language) if one[-1] == "." else word[-1:].isalpha()):
            if one[-1] != "." or not _DOTTED_WORD.fullmatch(word):
                return None
            going_on.append(place)
    return _join_abbreviated(found, going_on, language) if going_on else found


def _join_abbreviated(found: list[str], places: Sequence[int], language: Language) -> list[str]:
    """Return the sentences without the ends that belong to an abbreviation: those of some of them, by their places."""
    text, start = " ".join(found), 0
    joined: list[str] = []
    end = -1
    for place, one in enumerate(found):
        end += len(one) + 1
        if place in places and _is_continued(text, start, end + 1, language):
            continue
        joined.append(text[start:end])
        start = end + 1
    return joined


def _find_ends(text: str, language: Language) -> Iterator[int]:
    """Yield where sentences end, the end of the text included."""
    library, capitals, brackets = (
        _find_library_ends(text, language.sentencex),
        _find_capitals(text),
        _find_bracket_stops(text),
    )
    library.discard(len(text))
    places = sorted(library | capitals | brackets)
    start, previous, worded = 0, 0, False
    for place, following in pairwise([*places, len(text)]):
        worded = (
            worded or text[previous].isalnum() or has_word(text, previous, place)
        )  # the first alone is most often a letter
        previous = place
        if not worded or not (text[place : place + 1].isalnum() or has_word(text, place, following)):
            continue
        if place in capitals or (
            _is_bracket_end(text, start, place)
            if place in brackets
            else not _is_continued(text, start, place, language)
        ):
            yield place
            start, worded = place, False
    yield len(text)


def _find_library_ends(text: str, code: str) -> set[int]:
    """Return where the library ends a sentence, in time that grows with the text.

    It fails at blanks of more than one byte.
    """
    text, position = text if text.isascii() else _BLANK.sub(" ", text), 0
    if code == _WANTS_CAPITALS:
        text = _SMALL_START.sub(rf"\1{_MASK.upper()}", text)
    text = _mask_words(text)
    if _ENCLOSING.search(text):
        text = _OPENING.sub(_MASK.upper(), text).translate(_CLOSED)
    text = text if text.isascii() else _NOTE.sub(_replace_by_quotes, text)
    found: set[int] = set()
    while position < len(text):
        window = text[position : position + _WINDOW]
        ends = list(accumulate(map(len, sentencex.segment(code, window))))
        if position + len(window) < len(text):
            ends = [end for end in ends if end <= _SURE] or ends[:-1]
        found.update(position + end for end in ends)
        position += ends[-1] if ends else len(window)
    return found


def _mask_words(text: str) -> str:
    """Replace the last character of each word that a full stop follows, and of those whose mark the library takes for
    a part of them.
    """
    for word, masked in _SHOUTED if "Y" in text else ():
        text = text.replace(word, masked)
    parts, done = [], 0
    for stop in _WORD_STOP.finditer(text):
        parts.append(text[done : stop.start() - 1])
        done = stop.start()
    return _MASK.join([*parts, text[done:]])


def _replace_by_quotes(note: re.Match[str]) -> str:
    return "”" * len(note[0])


def _find_capitals(text: str) -> set[int]:
    """Return where a capital letter follows an ellipsis, never an end to the library."""
    return {stop.end() for stop in _ELLIPSIS.finditer(text) if stop[1].isupper()} if "…" in text else set()


def _find_bracket_stops(text: str) -> set[int]:
    """Return where a bracket closes behind the end of a sentence."""
    closes = ")" in text or "]" in text if text.isascii() else _CLOSING.search(text)
    return {stop.end() for stop in _BRACKET_STOP.finditer(text)} if closes else set()


def _is_bracket_end(text: str, start: int, place: int) -> bool:
    """Tell whether a sentence that began with brackets, or within them, ends with them, and something new follows."""
    if text[place].islower():
        return False
    inside = text[max(start, place - _LONG) : place]
    opened, closed = (sum(map(inside.count, marks)) for marks in (_PAIRS, _PAIRS.values()))
    close = _PAIRS.get(text[start : start + _REACH].lstrip()[:1])
    if close is None:
        return not opened
    first = text.find(close, start, place)
    if opened != closed or first < 0 or place - first > _REACH:
        return False
    return not text[first:place].strip(_AFTER_BRACKET) and any(map(str.isalpha, text[start:first]))


def _is_continued(text: str, start: int, place: int, language: Language) -> bool:
    """Tell whether the sentence from ``start`` goes on at a place where the library ends it."""
    before = text[max(start, place - _REACH) : place]
    tail = before.rstrip()
    if tail[-1] == "." and len(tail) < len(before) and is_ordinary(tail[tail.rfind(" ") + 1 : -1], language):
        return False
    if tail[-1] in "》〉":  # a title, which may hold ! and ?
        return tail.rstrip(_CLOSERS)[-1:] not in "。｡"
    if tail[-1] in _CLOSERS:
        return tail.rstrip(_CLOSERS)[-1:] in END_MARKS and _is_continued_after_quote(
            text, start, place, tail[-1] in _QUOTES, language
        )
    if tail[-1] != ".":
        return _DASH.match(text, place) is not None  # ¿Vienes? —preguntó Ana.
    after = text[place : place + _REACH]
    if len(tail) == len(before) and _is_glued(tail, after, language):
        return True
    words = tail[:-1].split()
    return bool(words) and is_abbreviation(words, tail, after, language)


def _is_continued_after_quote(text: str, start: int, place: int, quoted: bool, language: Language) -> bool:
    """Tell whether brackets or a quotation that have ended are part of a longer sentence; ``quoted``: a quotation mark
    closed them.
    """
    after = text[place : place + _REACH]
    first = after.lstrip(" \"'“«")[:1]
    if first.islower() or first in ",;:，；：、،؛":
        return True
    if not text[place - 1].isspace() and language.speech and _compile_pattern(language.speech).match(after):
        return True
    if language.tells is None or not quoted:
        return False
    said = text[max(start, place - _LONG) : place].rstrip()
    opens = text[start : start + _REACH].lstrip()[:1] in _QUOTES or not _OPENED.search(
        said, 0, len(said.rstrip(_CLOSERS))
    )
    return opens and _compile_pattern(language.tells).match(after) is not None


@lru_cache
def _compile_pattern(pattern: str) -> regex.Pattern[str]:
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


def find_end_marks(sentence: str) -> str:
    """Return the run of marks a sentence ends in, closing quotes, brackets and emoji aside; empty if it ends in
    none.
    """
    if sentence[-1:] in END_MARKS and sentence[-2:-1].isalnum():  # most do
        return sentence[-1]
    tail = sentence[-_REACH:]
    while tail and tail[-1] not in END_MARKS:
        if tail[-1].isalnum():
            return ""
        tail = tail[:-1]
    return tail[len(tail.rstrip(END_MARKS)) :]
