"""Whether text that Markdown takes for code is code: a fence or an indentation must not take prose out of the counts.

A line is code by its marks (``x = 1``, ``foo(bar);``, ``</div>``, ``$ ls``, ``# a comment``, ``"key": value``), and
prose where it reads as words. An indented block is prose unless half its lines or more are code. A fence is code unless
it holds prose: a line of five words or more, or several short ones, and fewer lines of code than of prose. Under the
label of a language it is prose only where no line is code and a sentence ends. An indentation or an unlabelled fence
around a whole reply takes nothing out of the counts unless half its lines or more are code, headings aside, or there is
but one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import regex

PROSE_LINE_WORDS = 5
"""Words from which on a line in a fence reads as prose; a program's output and names are shorter."""
PROSE_WORDS = 8
"""Words of several short lines from which on they read as prose: a poem."""
_LEAST_A_LINE = 2.5
_PLAIN_LABELS = frozenset(
    {"", "text", "txt", "plain", "plaintext", "markdown", "md", "none", "output", "prose", "quote", "email"}
)
_LINE_LIMIT = 400
"""Characters of a line that are looked at; a line of code has its marks early."""
_CODE = re.compile(
    r"[;{}\\]\s*$|^\s*(?:[#$>%├└│]|//|/\*|\*/|--|<[/!?a-zA-Z]|@\w|[}\])])"
    r"|^\s*(?:def|class|import|from\s+\S+\s+import|return|elif|else:|try:|except|for\b.*\bin\b.*:|while\b.*:|if\b.*:$|with\b.*:$"
    r"|print\b|public|private|static|const|let|var|function|func|fn|package|include|using|SELECT|INSERT|UPDATE|CREATE|echo|sudo|pip|npm|git"
    r"|cd|curl|docker|apt|make)(?=[\s(:.]|$).*(?:[=(){}\[\];:<>/\\_'\"`-]|$)"
    r"|[=!<>+*/|&-]=|:=|=>|->|::|&&|\|\||\w\(\S*\)|\w\(\)|^\s*[\w.\[\]'\"-]+\s*=\s*\S|^\s*[\"'][^\"'\n]{0,80}[\"']\s*:|^\s*[\w-]+:\s*[\[{|\"'\d]"
    r"|\w\.\w+\(|^\s*\w+(?:\.\w+){2,}|^\s*/\w|^\s*\|.*\|\s*$|\w_\w+_|</\w"
)
_REMARK = re.compile(r"^\s*(?:[#$>%]+|//+|--+|/\*+)\s+")
_REMARK_STARTS = ("#", "$", ">", "%", "/", "-")
_REMARK_WORDS = 3
_SPAN = re.compile(r"`[^`]+`")
_HEADING = re.compile(r"\s*#{1,6}\s")
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]++(?:['’.,-][\p{L}\p{N}]++)*+")
_LETTERS = regex.compile(r"\p{L}[\p{L}\p{M}]*+")
_LEAST_WORDS = 2
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]")
_ENDS = regex.compile(r"[.!?。！？।؟…]['\"”’»」』)*_]*\s*$")
_UNSPACED_PER_WORD = 2


def is_code(lines: Sequence[str], *, whole: bool = False) -> bool:
    """Tell whether an indented block is code; ``whole``: it is all there is of a reply."""
    seen = [line for line in lines if line.strip() and not (whole and _HEADING.match(line))]
    if not seen:  # nothing but lines behind #: headings, or remarks of a program
        return not any(_count_words(_REMARK.sub("", line[:_LINE_LIMIT])) >= PROSE_LINE_WORDS for line in lines)
    return 2 * len(_find_code(seen)) >= len(seen)


def is_prose(lines: Sequence[str], label: str, *, whole: bool = False) -> bool:
    """Tell whether what stands in a fence with this label is prose; ``whole``: it is all there is of a reply."""
    if whole and label.strip().lower() in _PLAIN_LABELS:
        return _count_letter_words("\n".join(lines)[:_LINE_LIMIT]) >= _LEAST_WORDS and not is_code(lines, whole=True)
    seen = [line for line in lines if line.strip()]
    found = _find_code(seen)
    if len(found) == len(seen):
        return False
    code, prose = len(found), [_count_words(line) for place, line in enumerate(seen) if place not in found]
    total = sum(prose)
    if code >= len(prose) or (
        max(prose, default=0) < PROSE_LINE_WORDS and total < max(PROSE_WORDS, _LEAST_A_LINE * len(prose))
    ):
        return False
    if label.strip().lower() in _PLAIN_LABELS:
        return True
    ends = any(_ENDS.search(line[-_LINE_LIMIT:]) for line in lines if _count_words(line) >= PROSE_LINE_WORDS)
    return code == 0 and (ends or total >= 2 * PROSE_LINE_WORDS * len(prose))


def _find_code(seen: Sequence[str]) -> frozenset[int]:
    """Return the places of lines of code.

    Remarks (a sentence behind ``#``, or before ``;``) are code beside code, and prose alone.
    """
    code = frozenset(place for place, line in enumerate(seen) if _is_code_line(line))
    remarks = frozenset(place for place in code if _is_remark(seen[place][:_LINE_LIMIT]))
    return code if code != remarks else frozenset()


def _is_remark(line: str) -> bool:
    if line.lstrip()[:1] not in _REMARK_STARTS and line[-1:] not in "; ":
        return False
    said = _REMARK.sub("", line).rstrip("; ")
    return said != line and _count_words(said) >= _REMARK_WORDS and not _is_code_line(said)


def _is_code_line(line: str) -> bool:
    head = line[:_LINE_LIMIT].rstrip()
    return _CODE.search(_SPAN.sub(" ", head) if "`" in head else head) is not None


def _count_letter_words(text: str) -> int:
    return len(_LETTERS.findall(text)) + len(_UNSPACED.findall(text)) // (2 * _UNSPACED_PER_WORD)


def _count_words(line: str) -> int:
    """Count words up to what is asked for; where no blanks separate them, two characters are one."""
    head = line[:_LINE_LIMIT]
    unspaced = len(_UNSPACED.findall(head))
    return len(_WORD.findall(head)) + unspaced // _UNSPACED_PER_WORD
