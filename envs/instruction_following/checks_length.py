"""Checks of lengths: characters, words, sentences, paragraphs. Characters are code points in NFC, the unit of task writers' tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, Verdict, counted, each, within


def _sentence_length(document: Document, arguments: Arguments) -> Verdict:
    longest, limit = max(document.sentence_lengths, default=0), arguments["max_words"]
    return Verdict(0 < longest <= limit, f"longest sentence: {longest} words; wanted: {limit} at most")


def _repetition(document: Document, arguments: Arguments) -> Verdict:
    if not document.words:
        return Verdict(False, "no word")
    word, times = Counter(document.folded_words).most_common(1)[0]
    return Verdict(times <= arguments["max_repeats"], f"{word}: {times} times; wanted: {arguments['max_repeats']} at most")


def _word_length(document: Document, arguments: Arguments) -> Verdict:
    if not document.words:
        return Verdict(False, "no word")
    lengths = [len(word) for word in document.words]
    shortest, longest = min(lengths), max(lengths)
    low, high = arguments["min_length"], arguments["max_length"]
    return Verdict(low <= shortest and longest <= high, f"words of {shortest} to {longest} characters; wanted: {low} to {high}")


def _average(document: Document, arguments: Arguments) -> Verdict:
    if not document.words:
        return Verdict(False, "no word")
    mean = sum(map(len, document.words)) / len(document.words)
    return within(mean, arguments["min_ratio"], arguments["max_ratio"], "mean word length")


def _paragraph_length(document: Document, arguments: Arguments) -> Verdict:
    return each(document.words_of_paragraphs, arguments, "words_per_paragraph", "paragraphs by words")


def _max_words(document: Document, arguments: Arguments) -> Verdict:
    found, limit = len(document.words), arguments["max_words"]
    return Verdict(0 < found <= limit, f"words: {found}; wanted: 1 to {limit}")


LENGTH: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "length_constraints:number_characters": counted(lambda document, _: len(document.text), "num_chars", "characters"),
        "length_constraints:number_words": counted(lambda document, _: len(document.words), "num_words", "words"),
        "length_constraints:unique_words": counted(
            lambda document, _: len(set(document.folded_words)), "num_unique", "different words"
        ),
        "length_constraints:sentence_length": _sentence_length,
        "length_constraints:word_repetition": _repetition,
        "length_constraints:word_length": _word_length,
        "length_constraints:avg_word_length": _average,
        "length_constraints:paragraph_length": _paragraph_length,
        "length:max_word_count": _max_words,
    }
)
