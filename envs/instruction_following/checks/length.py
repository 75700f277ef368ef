"""Checks of lengths: characters, words, sentences, paragraphs.

Characters are code points in NFC, the unit of task writers' tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.verdicts import (
    Arguments,
    CheckFunction,
    CheckVerdict,
    check_between,
    compare_each,
    make_count_check,
)


def _check_sentence_length(document: Document, arguments: Arguments) -> CheckVerdict:
    longest, limit = max(document.sentence_lengths, default=0), arguments["max_words"]
    return CheckVerdict(0 < longest <= limit, f"longest sentence: {longest} words; wanted: {limit} at most")


def _check_repetition(document: Document, arguments: Arguments) -> CheckVerdict:
    if not document.words:
        return CheckVerdict(False, "no word")
    word, times = Counter(document.folded_words).most_common(1)[0]
    return CheckVerdict(
        times <= arguments["max_repeats"], f"{word}: {times} times; wanted: {arguments['max_repeats']} at most"
    )


def _check_word_length(document: Document, arguments: Arguments) -> CheckVerdict:
    if not document.words:
        return CheckVerdict(False, "no word")
    lengths = [*map(len, document.words)]
    shortest, longest = min(lengths), max(lengths)
    low, high = arguments["min_length"], arguments["max_length"]
    return CheckVerdict(
        low <= shortest and longest <= high, f"words of {shortest} to {longest} characters; wanted: {low} to {high}"
    )


def _check_average(document: Document, arguments: Arguments) -> CheckVerdict:
    if not document.words:
        return CheckVerdict(False, "no word")
    mean = sum(map(len, document.words)) / len(document.words)
    return check_between(mean, arguments["min_ratio"], arguments["max_ratio"], "mean word length")


def _check_paragraph_length(document: Document, arguments: Arguments) -> CheckVerdict:
    return compare_each(document.words_of_paragraphs, arguments, "words_per_paragraph", "paragraphs by words")


def _check_max_words(document: Document, arguments: Arguments) -> CheckVerdict:
    found, limit = len(document.words), arguments["max_words"]
    return CheckVerdict(0 < found <= limit, f"words: {found}; wanted: 1 to {limit}")


LENGTH: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "length_constraints:number_characters": make_count_check(
            lambda document, _: len(document.text), "num_chars", "characters"
        ),
        "length_constraints:number_words": make_count_check(
            lambda document, _: len(document.words), "num_words", "words"
        ),
        "length_constraints:unique_words": make_count_check(
            lambda document, _: len(set(document.folded_words)), "num_unique", "different words"
        ),
        "length_constraints:sentence_length": _check_sentence_length,
        "length_constraints:word_repetition": _check_repetition,
        "length_constraints:word_length": _check_word_length,
        "length_constraints:avg_word_length": _check_average,
        "length_constraints:paragraph_length": _check_paragraph_length,
        "length:max_word_count": _check_max_words,
    }
)
