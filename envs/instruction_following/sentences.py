"""Sentences of one paragraph or list item: sentencex, and what it gets wrong put right.

The library knows abbreviations, numbers and most quotations. Put right here: pieces without any word (emoji, closing marks) belong to
the sentence before; a quotation that goes on after its full stop is one sentence; some abbreviations are missing; and an ellipsis or a
word such as "No." ends a sentence before a capital letter.
"""

from __future__ import annotations

import re

import sentencex

from gavel.envs.instruction_following.languages import END_MARKS, Language
from gavel.envs.instruction_following.text import has_word

_REACH = 64
"""How far back the end of a sentence is looked at."""

_BREAK = re.compile(r"\n+")
_MARKS = re.compile(f"[{re.escape(END_MARKS)}]")
_CLOSERS = "\"'”’»›」』）)]*_"
_OPENERS = "\"'“«„([（「"
_WORD_STOP = re.compile(r"(?:(?<!\w)([^\W\d_]{2,4})\.|…)\s+(?=[\"“«»„¿¡(\[]*[^\W\d_])")


def sentences(text: str, language: Language) -> list[str]:
    """Return the sentences of a paragraph without Markdown in it; line breaks within it are blanks. Text without a word has none."""
    text = _BREAK.sub(" " if language.spaced else "", text).strip()
    if not has_word(text):
        return []
    if not _MARKS.search(text, 0, len(text) - 1):  # one sentence, whatever the language
        return [text]
    return [part.strip() for segment in _joined(text, language) for part in _split_at_capitals(segment, language)]


def _joined(text: str, language: Language) -> list[str]:
    """Return the library's segments, those that go on joined with what they continue."""
    groups: list[list[str]] = []
    worded = False  # whether the last group holds a word
    for segment in sentencex.segment(language.sentencex, text):
        word_here = has_word(segment)
        if groups and (not word_here or not worded or _continues(groups[-1][-1][-_REACH:], segment, language)):
            groups[-1].append(segment)
            worded = worded or word_here
        else:
            groups.append([segment])
            worded = word_here
    return ["".join(group) for group in groups]


def _continues(before: str, segment: str, language: Language) -> bool:
    """Tell whether a segment with a word in it goes on with the sentence ``before``."""
    tail = before.rstrip()
    if tail[-1] in _CLOSERS:
        if tail.rstrip(_CLOSERS)[-1:] not in END_MARKS:
            return False
        start = segment.lstrip(" \"'“«")
        return start[:1].islower() or (not before[-1].isspace() and segment.startswith(language.speech or "\0"))
    if tail[-1] != ".":
        return False
    word = tail[:-1].split()[-1:]
    return bool(word) and _abbreviates(word[0].lstrip(_OPENERS), segment.lstrip()[:1], language)


def _abbreviates(word: str, follows: str, language: Language) -> bool:
    """Tell whether the full stop behind a word belongs to the word, by the character that follows."""
    if word in language.titles or (language.ordinals and len(word) < 3 and word.isdigit()):
        return True
    return (follows.islower() and (len(word) == 1 or word in language.abbreviations)) or (
        follows.isdigit() and word in language.abbreviations
    )


def _split_at_capitals(segment: str, language: Language) -> list[str]:
    """Split where a capital letter follows an ellipsis, never an end to the library, or a word it takes for an abbreviation."""
    lower = segment.lower()
    if "…" not in segment and not any(f"{word}." in lower for word in language.words):
        return [segment]
    parts, position = [], 0
    for stop in _WORD_STOP.finditer(segment):
        follows = segment[stop.end() : stop.end() + _REACH].lstrip('"“«»„¿¡([')
        if follows[:1].isupper() and (stop[1] is None or stop[1].lower() in language.words):
            parts.append(segment[position : stop.end()])
            position = stop.end()
    return [*parts, segment[position:]]


def end_marks(sentence: str) -> str:
    """Return the run of marks a sentence ends in, closing quotes, brackets and emoji aside; empty if it ends in none."""
    tail = sentence[-_REACH:]
    while tail and tail[-1] not in END_MARKS:
        if tail[-1].isalnum():
            return ""
        tail = tail[:-1]
    return tail[len(tail.rstrip(END_MARKS)) :]
