"""Sentences of one paragraph or list item: sentencex, and what it gets wrong put right.

The library knows abbreviations, numbers and most quotations. Put right here: pieces without any word (emoji, closing marks) belong to the
sentence before; a quotation that goes on after its full stop is one sentence; some abbreviations are missing; and a word such as
"No." ends a sentence before a capital letter.
"""

from __future__ import annotations

import re

import sentencex

from gavel.envs.instruction_following.languages import END_MARKS, Language

_REACH = 64
"""How far back the end of a sentence is looked at."""

_BREAK = re.compile(r"\n+")
_MARKS = re.compile(f"[{re.escape(END_MARKS)}]")
_TAIL = re.compile(rf"([{re.escape(END_MARKS)}]+)[^\w{re.escape(END_MARKS)}]*\Z")
_CLOSED = re.compile(rf"[{re.escape(END_MARKS)}][\"'”’»›」』）)\]*_]+\s*\Z")
_LAST_WORD = re.compile(r"([^\s\"'“«„(\[]+)\.\s*\Z")
_WORD_STOP = re.compile(r"(?<!\w)([^\W\d_]{2,4})\.\s+(?=[\"“«»„¿¡(\[]*[^\W\d_])")


def sentences(text: str, language: Language) -> list[str]:
    """Return the sentences of a paragraph without Markdown in it; line breaks within it are blanks. Text without a word has none."""
    text = _BREAK.sub(" " if language.spaced else "", text).strip()
    if not any(character.isalnum() for character in text):
        return []
    if not _MARKS.search(text, 0, len(text) - 1):  # one sentence, whatever the language
        return [text]
    return [part.strip() for segment in _joined(text, language) for part in _split_at_words(segment, language)]


def _joined(text: str, language: Language) -> list[str]:
    """Return the library's segments, those that go on joined with what they continue."""
    groups: list[list[str]] = []
    worded = False  # whether the last group holds a word
    for segment in sentencex.segment(language.sentencex, text):
        has_word = any(character.isalnum() for character in segment)
        if groups and (not has_word or not worded or _continues(groups[-1][-1][-_REACH:], segment, language)):
            groups[-1].append(segment)
            worded = worded or has_word
        else:
            groups.append([segment])
            worded = has_word
    return ["".join(group) for group in groups]


def _continues(before: str, segment: str, language: Language) -> bool:
    """Tell whether a segment with a word in it goes on with the sentence ``before``."""
    if _CLOSED.search(before):
        start = segment.lstrip(" \"'“«")
        return start[:1].islower() or (not before[-1].isspace() and segment.startswith(language.speech or "\0"))
    last = _LAST_WORD.search(before)
    return last is not None and _abbreviates(last[1], segment.lstrip()[:1], language)


def _abbreviates(word: str, follows: str, language: Language) -> bool:
    """Tell whether the full stop behind a word belongs to the word, by the character that follows."""
    if word in language.titles or (language.ordinals and len(word) < 3 and word.isdigit()):
        return True
    return (follows.islower() and (len(word) == 1 or word in language.abbreviations)) or (
        follows.isdigit() and word in language.abbreviations
    )


def _split_at_words(segment: str, language: Language) -> list[str]:
    """Split where a word that looks like an abbreviation ends a sentence: a capital letter follows."""
    if not language.words or "." not in segment:
        return [segment]
    parts, position = [], 0
    for stop in _WORD_STOP.finditer(segment):
        follows = segment[stop.end() :].lstrip('"“«»„¿¡([')
        if stop[1].lower() in language.words and follows[:1].isupper():
            parts.append(segment[position : stop.end()])
            position = stop.end()
    return [*parts, segment[position:]]


def end_marks(sentence: str) -> str:
    """Return the run of marks a sentence ends in, closing quotes, brackets and emoji aside; empty if it ends in none."""
    found = _TAIL.search(sentence[-_REACH:])
    return found[1] if found else ""
