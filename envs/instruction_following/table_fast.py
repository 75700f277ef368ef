"""The instructions that a program checks. A reply without any text fails every one of them."""

from __future__ import annotations

from gavel.envs.instruction_following.arguments import (
    COUNT,
    FRACTION,
    LETTER,
    LEVELS,
    LIMIT,
    NUMBER,
    RELATION,
    SPLITTER,
    TEXT,
    TEXTS,
    Argument,
    ArgumentKind,
    make_choice,
)
from gavel.envs.instruction_following.instruction import Instruction, Needs

_CASE: Needs = "letter case"
_VOWELS: Needs = "vowels and consonants"
_ALPHABET: Needs = "alphabet"


def _make_fast(
    name: str, definition: str, *arguments: Argument, needs: Needs = "", ordered: tuple[str, str] | None = None
) -> Instruction:
    return Instruction(name, "fast", arguments, definition, needs, ordered)


def _make_counted(
    name: str, number: str, definition: str, *before: Argument, needs: Needs = "", relation: str = "relation"
) -> Instruction:
    """An instruction that compares a count: ``before``, then a relation, then the number."""
    return _make_fast(name, definition, *before, Argument(relation, RELATION), Argument(number, COUNT), needs=needs)


def _make_limit(name: str, argument: str, definition: str) -> Instruction:
    return _make_fast(name, definition, Argument(argument, LIMIT))


def _make_range(name: str, low: str, high: str, kind: ArgumentKind, definition: str, needs: Needs = "") -> Instruction:
    return _make_fast(name, definition, Argument(low, kind), Argument(high, kind), needs=needs, ordered=(low, high))


_TARGET = Argument("target_string", TEXT)

FAST: tuple[Instruction, ...] = (
    _make_fast("change_case:all_caps", "There are letters, and none of them is lower-case.", needs=_CASE),
    _make_fast("change_case:lowercase", "There are letters, and none of them is upper-case.", needs=_CASE),
    _make_fast(
        "change_case:alternating",
        "Within every word upper and lower case take turns, letter by letter, whichever comes first.", needs=_CASE,
    ),
    _make_fast("change_case:first_letter_cap", "Every word begins with an upper-case letter and goes on in "
                                               "lower case.", needs=_CASE),
    _make_counted(
        "change_case:capital_word_frequency", "capital_frequency",
        "The number of words whose letters are all upper-case (a single letter counts) stands in the given relation "
        "to a number.",
        needs=_CASE, relation="capital_relation",
    ),
    _make_counted(
        "change_case:lowercase_word_frequency", "lowercase_frequency",
        "The number of words whose letters are all lower-case stands in the given relation to a number.",
        needs=_CASE, relation="lowercase_relation",
    ),
    _make_fast("change_case:all_caps_target", "The target occurs, and every time in upper "
                                              "case only.", _TARGET, needs=_CASE),
    _make_fast("change_case:lowercase_target", "The target occurs, and every time in lower "
                                               "case only.", _TARGET, needs=_CASE),
    _make_fast("change_case:alternating_target", "The target occurs, and every time in "
                                                 "alternating case.", _TARGET, needs=_CASE),
    _make_fast(
        "change_case:first_letter_cap_target",
        "The target occurs, and every time each of its words has an upper-case first letter and "
        "no other.", _TARGET, needs=_CASE,
    ),
    _make_range(
        "change_case:case_ratio", "min_fraction", "max_fraction", FRACTION,
        "Lower-case letters divided by upper-case ones lie within the bounds; without upper case the ratio is "
        "infinite.", _CASE,
    ),
    _make_fast(
        "change_case:first_letter_sentence",
        "Every sentence starts with an upper-case letter or a digit, quotation marks, brackets and "
        "emphasis aside.", needs=_CASE,
    ),
    _make_fast(
        "change_case:last_letter",
        "The last character, closing marks aside, is of the given kind; special means neither letter nor digit.",
        make_choice("case", "uppercase", "lowercase", "digit", "special"), needs=_CASE,
    ),
    _make_range(
        "change_case:vowel_consonant_balance", "min_fraction", "max_fraction", FRACTION,
        "Vowels divided by consonants lie within the bounds; without consonants the ratio is infinite.", _VOWELS,
    ),
    _make_counted(
        "detectable_content:number_placeholders", "num_placeholders",
        "The number of placeholders in square brackets, such as [name], stands in the given relation to a number.",
    ),
    _make_fast(
        "detectable_content:postscript",
        "The last line that is not blank begins with the marker, in any case, and "
        "goes on.", Argument("postscript_marker", TEXT),
    ),
    _make_counted(
        "detectable_content:numeric_inclusion", "num_numbers",
        "The number of numbers written in digits stands in the given relation to a number.",
    ),
    _make_fast("detectable_format:json_format", "The whole reply is one JSON document, bare or in one code fence."),
    _make_counted(
        "detectable_format:multiple_sections", "num_sections",
        "The number of section titles made of the splitter word and a number stands in the given relation to a number.",
        Argument("section_splitter", SPLITTER),
    ),
    _make_counted(
        "detectable_format:numbered_list", "num_numbered_items",
        "The number of numbered list items, at any depth, stands in the given relation to a number.",
    ),
    _make_counted(
        "detectable_format:number_bullet_lists", "num_bullets",
        "The number of bulleted list items, at any depth, stands in the given relation to a number.",
    ),
    _make_fast("detectable_format:title", "The first line holds a title in double angular brackets, such as <<A "
                                          "title>>."),
    _make_counted(
        "detectable_format:number_paragraphs", "num_paragraphs",
        "The number of paragraphs stands in the given relation to a number.",
    ),
    _make_limit("detectable_format:max_paragraph_length", "max_chars", "No paragraph has more characters than "
                                                                       "allowed."),
    _make_counted(
        "detectable_format:sentences_per_paragraph", "num_sentences",
        "The number of sentences of each paragraph stands in the given relation to a number.",
    ),
    _make_counted("detectable_format:sentence_count", "num_sentences", "The number of sentences stands in the given "
                                                                       "relation to a number."),
    _make_limit("detectable_format:sentence_endings", "min_variants", "Sentences end in at least that many "
                                                                      "different marks."),
    _make_fast(
        "detectable_format:nested_list", "Some list at that depth or deeper (1 is the outermost) has at least that "
                                         "many items.",
        Argument("min_depth", LIMIT), Argument("num_subitems", LIMIT),
    ),
    _make_fast(
        "detectable_format:table", "Some table has at least that many rows below its header, and at least that many "
                                   "columns.",
        Argument("min_rows", COUNT), Argument("min_cols", LIMIT),
    ),
    _make_fast(
        "detectable_format:heading_depth", "There are headings of each level; others may be "
                                           "there too.", Argument("levels", LEVELS)
    ),
    _make_fast("keywords:existence", "Every keyword occurs.", Argument("keywords", TEXTS)),
    _make_counted(
        "keywords:frequency", "frequency", "The number of times the keyword occurs stands in the given relation to "
                                           "a number.",
        Argument("keyword", TEXT),
    ),
    _make_fast("keywords:forbidden_words", "None of the words occurs.", Argument("forbidden_words", TEXTS)),
    _make_counted(
        "keywords:letter_frequency", "let_frequency",
        "The number of times the letter occurs, in either case, stands in the given relation to a number.",
        Argument("letter", LETTER), needs=_ALPHABET, relation="let_relation",
    ),
    _make_counted(
        "keywords:alliteration", "num_alliteration",
        "The number of words that begin with the letter, in either case, stands in the given relation to a number.",
        Argument("target_letter", LETTER), needs=_ALPHABET,
    ),
    _make_limit("keywords:palindrome_word", "min_length", "Some word of at least that many characters reads the "
                                                          "same backwards."),
    _make_fast(
        "keywords:positioning", "The word at that place (the first is 0) is the keyword, in either case.",
        Argument("keyword", TEXT), Argument("position", COUNT),
    ),
    _make_counted("keywords:vowel_count", "num_vowels", "The number of vowels stands in the given relation to "
                                                        "a number.", needs=_VOWELS),
    _make_counted(
        "keywords:consonant_count", "num_consonants", "The number of consonants stands in the given relation to "
                                                      "a number.",
        needs=_VOWELS,
    ),
    _make_counted(
        "length_constraints:number_characters", "num_chars",
        "The number of characters, blanks and line ends included, stands in the given relation to a number.",
    ),
    _make_counted("length_constraints:number_words", "num_words", "The number of words stands in the given relation "
                                                                  "to a number."),
    _make_limit("length_constraints:sentence_length", "max_words", "No sentence has more words than allowed."),
    _make_limit("length_constraints:word_repetition", "max_repeats", "No word occurs more often than allowed, "
                                                                     "whatever its case."),
    _make_counted(
        "length_constraints:unique_words", "num_unique", "The number of different words stands in the given "
                                                         "relation to a number."
    ),
    _make_range(
        "length_constraints:word_length", "min_length", "max_length", COUNT,
        "The shortest and the longest word have a number of characters within the bounds.",
    ),
    _make_range(
        "length_constraints:avg_word_length", "min_ratio", "max_ratio", NUMBER,
        "The mean number of characters of a word lies within the bounds.",
    ),
    _make_counted(
        "length_constraints:paragraph_length", "words_per_paragraph",
        "The number of words of each paragraph stands in the given relation to a number.",
    ),
    _make_fast("punctuation:no_comma", "There is no comma of any script."),
    _make_fast("punctuation:no_period", "There is no full stop of any script, not even in a number."),
    _make_counted(
        "punctuation:question_exclaim", "num_marks",
        "The number of question and exclamation marks stands in the given relation to a number.",
    ),
    _make_fast("punctuation:end_rule", "Sentences end only in the allowed marks.", Argument("allowed", TEXTS)),
    _make_fast(
        "startend:start_checker", "The reply begins with the phrase, in any case, opening "
                                  "marks aside.", Argument("start_phrase", TEXT)
    ),
    _make_fast("startend:end_checker", "The reply ends with the phrase, in any case, closing "
                                       "marks aside.", Argument("end_phrase", TEXT)),
    _make_fast("startend:wrap_checker", "The reply begins and ends with the phrase, with text "
                                        "between.", Argument("wrap_phrase", TEXT)),
    _make_fast("startend:quotation", "The whole reply stands in one pair of quotation marks."),
    _make_limit("length:max_word_count", "max_words", "There are no more words than allowed."),
    _make_counted(
        "punctuation:frequency", "frequency", "The number of times the mark occurs stands in the given relation to "
                                              "a number.",
        Argument("punctuation", TEXT),
    ),
    _make_fast("punctuation:balance", "Brackets and quotation marks are closed and nested; apostrophes and code are "
                                      "left out."),
    _make_limit("punctuation:variety", "min_types", "At least that many different punctuation characters occur."),
    _make_fast(
        "detectable_format:indentation",
        "There are indented lines, and each is indented by the given character, a multiple of the size.",
        make_choice("indent_type", "tab", "spaces"), Argument("size", LIMIT),
    ),
    _make_fast(
        "detectable_format:section_balance", "Every section, from one heading to the next, has exactly that many "
                                             "bullets or sentences.",
        make_choice("element_type", "bullets", "sentences"), Argument("count", COUNT),
    ),
)  # fmt: skip
