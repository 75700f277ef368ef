"""Marks at the start of a line that open no item: dashes of dialogue, attributions, ordinals of dates and editions.

- **Dashes** (—, ―, and – where the language opens speech with it, elsewhere only an attribution): the items that follow
each other are a list where a lead-in or a heading stands before them, or where there are two or more and none ends like
  a sentence. Else they are speech; one alone is an attribution.
- **Ordinals** (``2ª edição``, ``3.ª``) and numbers of several parts (``3.14.``) open an item where another numbered
item stands beside theirs.
- **Numbers with a full stop** before a month or a noun that is counted (``3. Oktober``) are dates where the language
writes ordinals so, and no other numbered item stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gavel.envs.instruction_following.abbreviations import LINE_NOUNS, ORDINAL_NOUNS
from gavel.envs.instruction_following.block import Block
from gavel.envs.instruction_following.languages import END_MARKS, Language

_DASH = re.compile(r"[\s>]*([—–―])\s*")
_ORDINAL = re.compile(r"[\s>*_]*(?:\d{1,3}\.?[ºª°]|\d{1,3}\.\d{1,3})")
_NUMBERED = re.compile(r"[\s>]*\d{1,2}\.\s*([^\W\d_]+|\d{1,2}\.)")
_CLOSING = "\"'”’»«“)]*_ "
_LEAD_INS = (":", "：")


def settle_marks(found: list[Block], lines: Sequence[str], language: Language) -> None:
    """Turn items whose mark opens none into paragraphs, in place; ``lines`` are those of the reply."""
    for group in _find_dashed(found, lines):
        speaks = language.speech_dash or lines[found[group[0]].line].lstrip(" \t>")[0] != "–"
        if not (_is_list(found, group) if speaks else not _is_attribution(found, group)):
            for place in group:
                _make_paragraph(found[place], lines)
    for place, block in enumerate(found):
        if block.marker == "number" and _is_ordinal(lines[block.line], language) and not _has_sibling(found, place):
            _make_paragraph(block, lines)


def _find_dashed(found: Sequence[Block], lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the runs of items that open with a dash of speech."""
    run: list[int] = []
    for place, block in enumerate(found):
        if block.marker == "bullet" and _DASH.match(lines[block.line]) is not None:
            run.append(place)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_list(found: Sequence[Block], group: Sequence[int]) -> bool:
    before = found[group[0] - 1] if group[0] else None
    if before is not None and (before.kind in ("heading", "title") or before.text.rstrip(_CLOSING).endswith(_LEAD_INS)):
        return True
    return len(group) > 1 and not any(found[place].text.rstrip(_CLOSING)[-1:] in END_MARKS for place in group)


def _is_attribution(found: Sequence[Block], group: Sequence[int]) -> bool:
    """Tell whether a dash that opens no speech stands alone behind what ends like a sentence: a quotation's author."""
    before = found[group[0] - 1] if group[0] and len(group) == 1 else None
    return before is not None and before.kind == "paragraph" and before.text.rstrip(_CLOSING)[-1:] in END_MARKS


def _has_sibling(found: Sequence[Block], place: int) -> bool:
    around = (found[other] for other in (place - 1, place + 1) if 0 <= other < len(found))
    return any(block.marker == "number" for block in around)


def _is_ordinal(line: str, language: Language) -> bool:
    if _ORDINAL.match(line):
        return True
    numbered = _NUMBERED.match(line) if language.ordinals else None
    return numbered is not None and (
        numbered[1] in ORDINAL_NOUNS or numbered[1] in LINE_NOUNS or numbered[1][0].isdigit()
    )


def _make_paragraph(block: Block, lines: Sequence[str]) -> None:
    first = lines[block.line].lstrip(" \t>")
    rest = block.text.partition("\n")[2]
    block.kind, block.marker, block.level = "paragraph", "", 0
    block.text = f"{first}\n{rest}" if rest else first
