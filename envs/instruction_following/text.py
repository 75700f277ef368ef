"""Text without structure: normal forms, what Markdown leaves visible of a line, words, graphemes."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

import regex
from icu4py.breakers import WordBreaker

from gavel.envs.instruction_following.code_text import is_prose
from gavel.envs.instruction_following.hidden import strip_all_hidden, strip_hidden
from gavel.envs.instruction_following.languages import Language
from gavel.envs.instruction_following.shown import show_html

_SURROGATES = re.compile("[\ud800-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_LINK_END = re.compile(r"\]\(")
_LINK = re.compile(r"[!\[](?:(?<=!)\[|(?<=\[))([^\[\]\n]*)\]\([^()\n]*\)")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,40}\](?::\s)?")
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]+(?<!`)\1(?!`)")
_TAG = re.compile(r"</?(?:b|i|u|s|em|strong|code|sub|sup|mark|br|p|span|div)(?: [^<>\n]*)?/?>", re.IGNORECASE)
_EMPHASIS = re.compile(r"[*`_~](?:(?<=[*`])[*`]*|(?<=_)_*|(?<=~)~)")
"""Runs of ``*`` and `` ` ``, runs of ``_``, and ``~~``; written so that the engine looks for the first character
only.
"""
_EMPHASIS_OF_ONE = tuple(
    (mark, re.compile(pattern)) for mark, pattern in (("*", r"\*\**"), ("_", r"__*"), ("`", r"``*"), ("~", r"~~"))
)
"""The same where a text holds one of these marks: the engine finds a character sooner than any of a set."""
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")

_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_ODD_LINE_END = re.compile("[\r\x0b\x0c\x85\u2028\u2029]")
"""What of it is no plain line end: a set alone is found in a third of the time."""

_SOFT_BREAK = regex.compile(r"(?<=[\p{Han}\p{Hiragana}\p{Katakana}ー])\n(?=[\p{Han}\p{Hiragana}\p{Katakana}ー])")
_BLANK_AT_END = re.compile(r" \n")
_PLAIN_ASCII = b"\t\n" + bytes(range(32, 127))
_GAPS = "\u00a0\u2007\u2009\u202f"
_GROUP = rf"(?<=(?<![\p{{N}}.,])\p{{N}}{{1,3}})[{_GAPS}'’](?=\p{{N}}{{3}}(?!\p{{N}}))"
"""What separates the thousands of a number; an ordinary blank does not, because 2020 2021 2022 are three."""
NUMBER = regex.compile(rf"\p{{Nd}}+(?:(?:[.,:٫٬]|{_GROUP})\p{{Nd}}+)*+(?:[eE][+\-−]?\p{{Nd}}+(?!\w))?")
"""One number in digits: decimals, times and dates with full stops, and thousands in groups included."""
_GENDERED = r"(?<=\p{L})(?:[:*]|/-?)(?:innen|in)(?!\p{L})|(?<=\p{L})[:*](?:r|e|n|m|s|er|en|em|es)(?!\p{L})"
"""How German writes both sexes in one word: Lehrer:innen, Schüler/-innen, jede*r."""

_W = r"[\p{L}\p{M}\p{N}_\u00AD\u200B-\u200D]"
_WORD = regex.compile(
    rf"(?:https?://|www\.)[^\s<>\"“”„«»()]*[^\W_]/?"
    rf"|[\p{{L}}\p{{N}}]{_W}*+(?:['’‘´\-‐‑.@&·]{_W}++|(?<=\p{{N}})(?:[,:٫٬]|{_GROUP})\p{{N}}{_W}*+|{_GENDERED})*+"
)
_ASCII_WORD = re.compile(
    r"(?:https?://|www\.)[^\s<>\"()]*[^\W_]/?|[A-Za-z0-9]\w*(?:['\-.@&]\w+|(?<=[0-9])[,:][0-9]\w*)*", re.ASCII
)
"""The same of ASCII, in a third of the time."""
_UNUSUAL = tuple(
    (mark, re.compile(pattern))
    for mark, pattern in (
        (":", r":(?<=[A-Za-z]:)[a-z]"),
        ("*", r"\*(?<=[A-Za-z]\*)[a-z]"),
        ("/", r"/(?<=[A-Za-z]/)-?[a-z]"),
    )
)
"""Words of both sexes; each pattern begins with its mark, which is how the engine finds it soonest."""
_GROUPED = re.compile(r",[0-9](?<=[0-9],.)")
_TIMED = re.compile(r":[0-9](?<=[0-9]:.)")
_JOINERS = b"'-.@&"
"""What joins a word of ASCII, where a letter or a digit stands on both sides."""
_LOOSE_JOINERS = tuple(
    (joiner, re.compile(re.escape(bytes([joiner])) + rb"(?:(?<![A-Za-z0-9].)|(?![A-Za-z0-9]))")) for joiner in _JOINERS
)
_SEPARATOR = "\1"
_SEPARATED = f" {_SEPARATOR} "
"""Stands between texts of ASCII that are read in one go; no text holds it (it is hidden)."""
_APART_ASCII = (
    bytes(place if chr(place).isalnum() or place in _JOINERS or place == 1 else 32 for place in range(128)) + b" " * 128
)
"""Blanks for all that no word of ASCII holds, addresses, grouped digits and ``_`` aside."""
_BETWEEN = "\n\f\n"
"""What stands between texts that are read in one go: no text holds it (it is hidden), and no link, emphasis or word
reaches across.
"""
_SEEN = regex.compile(r"[^\s\p{Cc}\p{Cf}\p{M}\p{Default_Ignorable_Code_Point}\u2800]")
_ASCII_SEEN = re.compile("[!-~]")
_HAS_WORD = re.compile(r"[^\W_]")
_BETWEEN_BLANKS = regex.compile(rf"[^\W_](?:(?:\S|{_GROUP})*[^\W_])?")
_APART = re.compile(r"[\"'“”‘’«»「」『』()（）\[\]<>!?…,，]+")
GRAPHEME = regex.compile(r"\X")

_FOLD = str.maketrans(
    {"’": "'", "‘": "'", "´": "'", "ʼ": "'", "‐": "-", "‑": "-", "ـ": "", "œ": "oe", "æ": "ae", "\u0307": "",
     "“": '"', "”": '"', "„": '"',
     **{chr(mark): "" for mark in (*range(0x064B, 0x0653), 0x0670)},
     **{chr(zero + digit): str(digit) for zero in (0x0660, 0x06F0, 0x0966) for digit in range(10)}}
)  # fmt: skip
"""What makes no difference when words are compared: typographic variants, invisible marks, Arabic vowel signs, digits'
scripts.
"""
_PLAIN = {place: other for place, other in _FOLD.items() if place not in map(ord, "œæ\u0307")}
"""The part of it that leaves letters and their case alone."""


def compose_text(text: str) -> str:
    """Return the text in NFC; lone surrogates, which no library takes, become U+FFFD."""
    return text if text.isascii() else unicodedata.normalize("NFC", _SURROGATES.sub("\ufffd", text))


def is_plain(text: str) -> bool:
    """Tell whether a text is printable ASCII, tabs and line ends: all of it shows, and is as it stays."""
    return text.isascii() and not text.encode().translate(None, _PLAIN_ASCII)


def normalise_text(text: str) -> str:
    """Return the text composed, with plain line ends and without blanks at the ends of lines."""
    if _ODD_LINE_END.search(text):
        text = _LINE_END.sub(_replace_line_end, text)
    return _rstrip_lines(compose_text(text))


def _rstrip_lines(text: str) -> str:
    return "\n".join([line.rstrip() for line in text.split("\n")])


def _replace_line_end(mark: re.Match[str]) -> str:
    return "\n\n" if mark[0] == "\u2029" else "\n"


def _rstrip_plain(text: str) -> str:
    return _rstrip_lines(text) if "\t" in text or _BLANK_AT_END.search(text) else text.rstrip(" ")


def show_reply(response: str) -> str:
    """Return a reply as a reader sees it: normal, without what does not show, its HTML as Markdown."""
    text = _rstrip_plain(response) if is_plain(response) else strip_hidden(normalise_text(response))
    shown = show_html(text)
    return text if shown is text else normalise_text(strip_hidden(shown))


def to_plain_text(text: str) -> str:
    """Return the text as it is compared where typography and invisible marks make no difference, but case does."""
    return text if text.isascii() else unicodedata.normalize("NFKC", strip_all_hidden(text).translate(_PLAIN))


def fold_text(text: str) -> str:
    """Return the text as it is compared where case, typography and invisible marks make no difference."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKC", strip_all_hidden(text)).casefold().translate(_FOLD)
    )


@lru_cache(maxsize=4096)
def fold_phrase(phrase: str) -> str:
    """``fold_text`` of an argument, remembered: the same tasks come again for every rollout.

    What would vanish stays as it is.
    """
    return fold_text(phrase) if fold_text(phrase).strip() else phrase


def extract_visible(markdown: str) -> str:
    """Return what a reader sees of a line or paragraph: emphasis and tags removed, links reduced to their text."""
    if "[" in markdown and (close := markdown.find("]")) >= 0 and _LINK_END.search(markdown, close):
        markdown = _LINK.sub(r"\1", markdown)
    if "^" in markdown:
        markdown = _FOOTNOTE.sub("", markdown)
    if "<" in markdown:
        markdown = _TAG.sub("", markdown)
    marks = [pattern for mark, pattern in _EMPHASIS_OF_ONE if mark in markdown]
    if marks:
        markdown = (marks[0] if len(marks) == 1 else _EMPHASIS).sub(_resolve_emphasis, markdown)
    return _ESCAPE.sub(r"\1", markdown) if "\\" in markdown else markdown


def _resolve_emphasis(run: re.Match[str]) -> str:
    """Return what is left of a run of marks: nothing where it can open or close emphasis, not so in a * b, 2*3,
    snake_case.
    """
    text, (start, end), marks = run.string, run.span(), run[0]
    before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
    if before == "\\":
        return marks
    if before.isspace() or after.isspace():
        return marks if before.isspace() and after.isspace() else ""
    if marks[0] == "_" or marks == "*":
        inside = before.isalnum() and after.isalnum() if marks[0] == "_" else before.isdigit() and after.isdigit()
        return marks if inside else ""
    return ""


def fold_visible(markdown: str, language: Language) -> str:
    """Return what a reader sees of a text as it is compared, with one blank for any run of white space; where no blanks
    separate words, a line break between Chinese or Japanese characters separates none either.
    """
    seen = extract_visible(markdown)
    return " ".join(fold_text(seen if language.spaced else _SOFT_BREAK.sub("", seen)).split())


def strip_code(markdown: str) -> str:
    """Return Markdown without its code spans, but for those that hold prose."""
    return _CODE.sub(_drop_code, markdown) if "`" in markdown else markdown


def _drop_code(span: re.Match[str]) -> str:
    inside = span[0].strip("`")
    return inside if is_prose([inside], "") else " "


def split_words(text: str, language: Language) -> list[str]:
    """Return the words in order, without the punctuation around them; numbers are words, marks and emoji are not.

    Hyphens, apostrophes and dots within a word join it (``well-known``, ``l'ami``, ``example.com``, ``3.14``,
    ``Lehrer:innen``), an address is one word, and so is a number, however its thousands are set apart. Korean words are
    what stands between blanks, without quotation marks and the like. Chinese and Japanese words are those of ICU's
    dictionary.
    """
    if language.joined:
        return [_APART.sub("", token) for token in _BETWEEN_BLANKS.findall(text)]
    if not language.spaced:
        return [text[start:end] for start, end in find_spans(text, language) if has_word(text[start:end])]
    return _WORD.findall(text) if _SEPARATOR in text or _is_unusual(text) else _ascii_words(text)[0]


def words_of_each(pieces: Sequence[str], language: Language) -> list[list[str]]:
    """Return the words of each of some texts: all are read at once, which takes less time, most of all where a
    dictionary is asked.
    """
    if len(pieces) < 2 or language.joined:
        return [split_words(piece, language) for piece in pieces]
    if language.spaced:
        text = _SEPARATED.join(pieces)
        return [_WORD.findall(piece) for piece in pieces] if _is_unusual(text) else _ascii_words(text)
    text = _BETWEEN.join(pieces)
    found: list[list[str]] = [[]]
    for start, end in find_spans(text, language):
        piece = text[start:end]
        if piece == "\f":
            found.append([])
        elif piece.isalnum() or has_word(piece):
            found[-1].append(piece)
    return found


def _is_unusual(text: str) -> bool:
    """Tell whether a text may hold words that ``_ASCII_WORD`` does not know."""
    return not text.isascii() or any(mark in text and pattern.search(text) for mark, pattern in _UNUSUAL)


def _ascii_words(text: str) -> list[list[str]]:
    """Return the words of ``_ASCII_WORD`` in each of the texts that ``_SEPARATED`` joins.

    They are cut at blanks, which is faster, where no word holds anything but letters, digits and joiners.
    """
    if "_" in text or ("/" in text and "://" in text) or "www." in text or _has_joined_digits(text):
        return [_ASCII_WORD.findall(piece) for piece in text.split(_SEPARATED)]
    written = text.encode().translate(_APART_ASCII).replace(b". ", b"  ")
    for joiner, loose in _LOOSE_JOINERS:
        if joiner in written:
            written = loose.sub(b" ", written)
    return [piece.split() for piece in written.decode().split(_SEPARATOR)]


def _has_joined_digits(text: str) -> bool:
    """Tell whether a comma or a colon may stand within a number."""
    return ("," in text and _GROUPED.search(text) is not None) or (":" in text and _TIMED.search(text) is not None)


def visible_of_each(markdown: Sequence[str]) -> list[str]:
    """Return ``extract_visible`` of each of some texts."""
    joined = _BETWEEN.join(markdown)
    if "^" in joined:  # a footnote's mark takes the blank behind it
        return [extract_visible(text) for text in markdown]
    seen = extract_visible(joined)
    return list(markdown) if seen is joined else seen.split(_BETWEEN)


def find_spans(text: str, language: Language) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the dictionary's segments, marks and blanks included."""
    yield from WordBreaker(_ASTRAL.sub(_replace_astral, text), language.icu).segments()


def _replace_astral(astral: re.Match[str]) -> str:
    """ICU counts in UTF-16 units: what would take two of them is replaced by a letter or a mark that takes one."""
    return "㐀" if astral[0].isalnum() else "□"


def has_word(text: str, start: int = 0, end: int = sys.maxsize) -> bool:
    """Tell whether a text has a letter or a digit, between two places."""
    return _HAS_WORD.search(text, start, end) is not None


def is_seen(text: str) -> bool:
    """Tell whether a text has a character that shows: no blank, control, or filler, and no mark without its letter."""
    if text.isascii():  # nothing but letters, digits and marks shows there
        return "!" <= text[:1] <= "~" or _ASCII_SEEN.search(text) is not None
    return _SEEN.search(text) is not None


def begins_seen(text: str) -> bool:
    """Tell whether a text begins with a letter or a digit of ASCII, which shows whatever Markdown stands behind it."""
    first = text[:1]
    return first.isascii() and first.isalnum()


def split_graphemes(text: str) -> list[str]:
    """Return the characters as a reader counts them: a letter with its marks is one."""
    return list(text) if text.isascii() else GRAPHEME.findall(text)


def count_ascii(text: str, characters: bytes) -> int:
    """Return how many characters of a text, which is all ASCII, are among some."""
    return len(text) - len(text.encode().translate(None, characters))


def strip_accent(character: str) -> str:
    """Return a letter without its accent; what is no accented letter comes back as it is."""
    return character if character.isascii() else unicodedata.normalize("NFD", character)[0]
