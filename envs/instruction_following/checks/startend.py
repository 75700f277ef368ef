"""Checks of how a reply begins and ends: phrases, wrapping marks, quotation marks.

A phrase is compared as it is first; only if that fails, marks that a reader would not take for part of the text are
left out on both sides. A phrase must not begin or end within a word of the reply, where blanks separate words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import BRACKETS, QUOTES
from gavel.envs.instruction_following.text import fold_phrase, fold_text, fold_visible, normalise_text
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, CheckVerdict

_OPENING = regex.compile(r"[^\p{L}\p{N}\p{M}]+")
_CLOSING = regex.compile(r"[^\p{L}\p{N}\p{M}]")
_WRAPPING = regex.compile(r"(?:[\s*_`~\"'”’“»«›」』)\]]|\p{So}|\p{Sk}|[\uFE0F\u200D])")
_SET_APART = regex.compile(r" (?=[!?:;»])|(?<=«) ")
_WORD = regex.compile(r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]]", regex.VERSION1)
_START = 64
"""Characters of a reply that are looked at first for how it begins."""
_PAIRS = frozenset((*QUOTES, *BRACKETS, ("<", ">")))


def _fold_line(phrase: str) -> str:
    return " ".join(fold_phrase(phrase).split())


def _check_start(document: Document, arguments: Arguments) -> CheckVerdict:
    phrase = _fold_line(arguments["start_phrase"])
    phrases = (phrase, phrase, _strip_opening(phrase), _tighten_marks(phrase))
    starts = _read_starts(document, len(phrase) + 1)
    passed = any(wanted and _is_start(start, wanted) for start, wanted in zip(starts, phrases, strict=True)) or (
        _is_markup(phrase) and _is_start(document.folded_literal, phrase)
    )
    return CheckVerdict(passed, f"begins with {starts[0][:40]!r}")


def _read_starts(document: Document, least: int) -> tuple[str, ...]:
    """Return the start of a reply in the ways it may be read, each longer than ``least`` unless the reply is not: with
    its Markdown, without, without the marks it opens with, and without the blanks that French sets beside marks.

    Cut at the end of a line, which nothing that is read here reaches across.
    """
    text, size = document.text, _START + 4 * least
    while True:
        end = text.find("\n", size)
        head = text if end < 0 else text[:end]
        shown = fold_visible(head, document.language)
        starts = (" ".join(fold_text(head).split()), shown, _strip_opening(shown), _tighten_marks(shown))
        if end < 0 or min(map(len, starts)) > least:
            return starts
        size *= 4


def _tighten_marks(text: str) -> str:
    """Return a text without the blanks that French sets beside its marks: a phrase may be written with them or
    without.
    """
    return _SET_APART.sub("", text)


def _strip_opening(text: str) -> str:
    opening = _OPENING.match(text)
    return text[opening.end() :] if opening else text


def _is_markup(phrase: str) -> bool:
    """Whether a phrase holds what HTML or a link reads, so that the reply is compared as it was written."""
    return "<" in phrase or "&" in phrase or "](" in phrase


def _is_start(text: str, phrase: str) -> bool:
    if not text.startswith(phrase):
        return False
    rest = text[len(phrase) : len(phrase) + 1]
    return not (_WORD.match(phrase[-1]) and _WORD.match(rest))


def _check_end(document: Document, arguments: Arguments) -> CheckVerdict:
    phrase, text = _fold_line(arguments["end_phrase"]), document.folded_source
    passed = (
        _ends_in(text, phrase)
        or _ends_in(document.folded, phrase)
        or (_is_markup(phrase) and _ends_in(document.folded_literal, phrase))
        or _ends_in(_tighten_marks(document.folded), _tighten_marks(phrase))
    )
    return CheckVerdict(passed, f"ends with {text[-40:]!r}")


def _ends_in(text: str, phrase: str) -> bool:
    return any(_is_end(read, phrase) for read in _list_endings(text, phrase))


def _list_endings(text: str, phrase: str) -> tuple[str, ...]:
    """Return the text in the ways its end may be read: as it is, without wrapping marks, and, unless the phrase itself
    ends in a mark, without any mark."""
    unwrapped = _strip_marks(_WRAPPING, text.rstrip("-") if text.endswith(" ---") else text)
    if _CLOSING.fullmatch(phrase[-1:]):
        return text, unwrapped
    return text, unwrapped, _strip_marks(_CLOSING, unwrapped)


def _strip_marks(marks: regex.Pattern[str], text: str) -> str:
    """Remove marks at the end, looked for from the end: a search from the start would try every run of marks on the
    way.
    """
    end = len(text)
    while end and marks.fullmatch(text, end - 1, end):
        end -= 1
    return text[:end]


def _is_end(text: str, phrase: str) -> bool:
    if not text.endswith(phrase):
        return False
    before = text[-len(phrase) - 1 : -len(phrase)]
    return not (_WORD.match(phrase[0]) and before and _WORD.match(before))


def _check_wrap(document: Document, arguments: Arguments) -> CheckVerdict:
    phrase = normalise_text(arguments["wrap_phrase"]).strip()
    text = document.literal if _is_markup(phrase) else document.text
    opener, closer = (phrase[0], phrase[1]) if len(phrase) == 2 and tuple(phrase) in _PAIRS else (phrase, phrase)
    inside = text[len(opener) : len(text) - len(closer)].strip()
    passed = (
        _is_start(text, opener) and _is_end(text, closer) and len(text) > len(opener) + len(closer) and bool(inside)
    )
    return CheckVerdict(passed, f"from {text[: len(opener)]!r} to {text[-len(closer) :]!r}")


def _check_quotation(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    text = document.text.strip("*_ \n").lstrip("> ")
    passed = len(text) > 2 and any(_is_quoted(text, opener, closer) for opener, closer in QUOTES)
    return CheckVerdict(passed, "in quotation marks" if passed else "not in one pair of quotation marks")


def _is_quoted(text: str, opener: str, closer: str) -> bool:
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
        "startend:start_checker": _check_start,
        "startend:end_checker": _check_end,
        "startend:wrap_checker": _check_wrap,
        "startend:quotation": _check_quotation,
    }
)
