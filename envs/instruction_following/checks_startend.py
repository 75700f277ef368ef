"""Checks of how a reply begins and ends: phrases, wrapping marks, quotation marks.

A phrase is compared as it is first; only if that fails, marks that a reader would not take for part of the text are left out on both
sides. A phrase must not begin or end within a word of the reply, where blanks separate words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import BRACKETS, QUOTES
from gavel.envs.instruction_following.text import folded, normal
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, Verdict

_OPENING = regex.compile(r"[^\p{L}\p{N}\p{M}]+")
_CLOSING = regex.compile(r"[^\p{L}\p{N}\p{M}]")
_WRAPPING = regex.compile(r"(?:[\s*_`~\"'”’“»«›」』)\]]|\p{So}|\p{Sk}|[\uFE0F\u200D])")
_SET_APART = regex.compile(r" (?=[!?:;»])|(?<=«) ")
_WORD = regex.compile(r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]]", regex.VERSION1)
_PAIRS = frozenset((*QUOTES, *BRACKETS, ("<", ">")))


def _one_line(phrase: str) -> str:
    return " ".join(folded(phrase).split())


def _start(document: Document, arguments: Arguments) -> Verdict:
    phrase = _one_line(arguments["start_phrase"])
    bare = _without_opening(phrase)
    text = document.folded_source
    wholes = (text, document.folded, *((document.folded_literal,) if _is_markup(phrase) else ()))
    passed = any(_starts(whole, phrase) for whole in wholes) or (bool(bare) and _starts(_without_opening(document.folded), bare))
    passed = passed or _starts(_tightened(document.folded), _tightened(phrase))
    return Verdict(passed, f"begins with {text[:40]!r}")


def _tightened(text: str) -> str:
    """Return a text without the blanks that French sets beside its marks: a phrase may be written with them or without."""
    return _SET_APART.sub("", text)


def _without_opening(text: str) -> str:
    opening = _OPENING.match(text)
    return text[opening.end() :] if opening else text


def _is_markup(phrase: str) -> bool:
    """Whether a phrase holds what HTML or a link reads, so that the reply is compared as it was written."""
    return "<" in phrase or "&" in phrase or "](" in phrase


def _starts(text: str, phrase: str) -> bool:
    if not text.startswith(phrase):
        return False
    rest = text[len(phrase) : len(phrase) + 1]
    return not (_WORD.match(phrase[-1]) and _WORD.match(rest))


def _end(document: Document, arguments: Arguments) -> Verdict:
    phrase, text = _one_line(arguments["end_phrase"]), document.folded_source
    wholes = (text, document.folded, *((document.folded_literal,) if _is_markup(phrase) else ()))
    tight = _tightened(phrase)
    passed = any(_ends(read, phrase) for whole in wholes for read in _endings(whole, phrase))
    passed = passed or any(_ends(read, tight) for read in _endings(_tightened(document.folded), tight))
    return Verdict(passed, f"ends with {text[-40:]!r}")


def _endings(text: str, phrase: str) -> tuple[str, ...]:
    """Return the text in the ways its end may be read: as it is, without wrapping marks, and, unless the phrase itself ends in a mark,
    without any mark."""
    unwrapped = _rstripped(_WRAPPING, text.rstrip("-") if text.endswith(" ---") else text)
    if _CLOSING.fullmatch(phrase[-1:]):
        return text, unwrapped
    return text, unwrapped, _rstripped(_CLOSING, unwrapped)


def _rstripped(marks: regex.Pattern[str], text: str) -> str:
    """Remove marks at the end, looked for from the end: a search from the start would try every run of marks on the way."""
    end = len(text)
    while end and marks.fullmatch(text, end - 1, end):
        end -= 1
    return text[:end]


def _ends(text: str, phrase: str) -> bool:
    if not text.endswith(phrase):
        return False
    before = text[-len(phrase) - 1 : -len(phrase)]
    return not (_WORD.match(phrase[0]) and before and _WORD.match(before))


def _wrap(document: Document, arguments: Arguments) -> Verdict:
    phrase = normal(arguments["wrap_phrase"]).strip()
    text = document.literal if _is_markup(phrase) else document.text
    opener, closer = (phrase[0], phrase[1]) if len(phrase) == 2 and tuple(phrase) in _PAIRS else (phrase, phrase)
    inside = text[len(opener) : len(text) - len(closer)].strip()
    passed = _starts(text, opener) and _ends(text, closer) and len(text) > len(opener) + len(closer) and bool(inside)
    return Verdict(passed, f"from {text[: len(opener)]!r} to {text[-len(closer) :]!r}")


def _quotation(document: Document, arguments: Arguments) -> Verdict:  # noqa: ARG001
    text = document.text.strip("*_ \n").lstrip("> ")
    passed = len(text) > 2 and any(_quoted(text, opener, closer) for opener, closer in QUOTES)
    return Verdict(passed, "in quotation marks" if passed else "not in one pair of quotation marks")


def _quoted(text: str, opener: str, closer: str) -> bool:
    """Whether one pair spans the whole text: what opens at the start must not close before the end."""
    inside = text[1:-1]
    if text[0] != opener or text[-1] != closer or not any(character.isalnum() for character in inside):
        return False
    if opener == closer:
        first = inside.find(opener)
        return first < 0 or (first > 0 and (inside[first - 1].isspace() or inside[first - 1] in "([{"))
    depth = 0
    for mark in inside:
        depth += (mark == opener) - (mark == closer)
        if depth < 0:
            return False
    return depth == 0


START_END: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "startend:start_checker": _start,
        "startend:end_checker": _end,
        "startend:wrap_checker": _wrap,
        "startend:quotation": _quotation,
    }
)
