"""Replies as plain as most are, read in one pass in half the time: lines of text, items, and headings, fences and
tables without indentation.

What this reads it reads as ``blocks`` does; anything else it leaves to that, which is slower.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from gavel.envs.instruction_following.block import Block, Marker
from gavel.envs.instruction_following.blocks import mark_title
from gavel.envs.instruction_following.languages import BULLETS, Language
from gavel.envs.instruction_following.line_marks import settle_marks
from gavel.envs.instruction_following.structure import read_plain_block

_ITEM = re.compile(r"( *)(?:([-*+])|[0-9]{1,3}[.)]) {1,4}(?=[\"(]?[A-Za-z]|\*\*[A-Za-z]|[0-9]+ ?[A-Za-z])")
_HEADING = re.compile(r"(#{1,6}) ([A-Za-z][^<#]*)$")
_CODE_INDENT = 4
_TEXT = frozenset(string.ascii_uppercase + "\"'[“‘«„¿¡")
_SMALL = frozenset(string.ascii_lowercase) - frozenset("ivx")
"""What a line of text begins with; a small letter opens an item where a full stop or a bracket stands behind it."""
_NUMERALS = "一二三四五六七八九十"


def read_plain_blocks(lines: Sequence[str], language: Language) -> list[Block] | None:
    """Return all blocks of a reply in order; None where it is not as plain as that."""
    blocks: list[Block] = []
    indents: list[int] = []
    current: Block | None = None
    fresh, numbered, done = True, False, 0
    for number, line in enumerate(lines):
        if number < done:
            continue
        if not line:
            current, fresh = None, True
        elif line[0] in _TEXT or _is_text(line):
            if current is not None:
                current.end = number + 1
            else:
                indents.clear()
                current = Block("paragraph", line, number, number + 1, 0, "", fresh)
                blocks.append(current)
                fresh = False
        elif (item := _ITEM.match(line)) is not None and (item.end(1) < _CODE_INDENT or (number and lines[number - 1])):
            indent = item.end(1)
            while indents and indent < indents[-1]:
                indents.pop()
            if not indents or indent >= indents[-1] + 2:
                indents.append(indent)
            marker = item[2]
            numbered = numbered or not marker
            kind: Marker = "bullet" if marker else "number"
            current = Block("item", line[item.end() :], number, number + 1, len(indents), kind, fresh)
            blocks.append(current)
            fresh = False
        elif (heading := _HEADING.match(line)) is not None:
            blocks.append(Block("heading", heading[2], number, number + 1, len(heading[1])))
            indents.clear()
            current, fresh = None, True
        else:
            found = read_plain_block(lines, number, number == done or not lines[number - 1])
            if found is None or found[0][0].end != found[1]:  # nothing, or a fence of prose
                return None
            (block,), done = found
            if block.kind == "heading":
                mark_title(block)
                indents.clear()
            blocks.append(block)
            current, fresh = None, True
    for block in blocks:
        if block.end - block.line > 1 and block.kind in ("paragraph", "item"):
            block.text = "\n".join([block.text, *lines[block.line + 1 : block.end]])
    if numbered and language.ordinals:
        settle_marks(blocks, lines, language)
    return blocks


def _is_text(line: str) -> bool:
    """Tell whether a line is text by less common beginnings: small letters, those of other alphabets, bold words."""
    first = line[0]
    if first in _SMALL:
        return line[1:2] not in ".)"
    if first == "*":
        return line[1:2] == "*" and line[2:3].isascii() and line[2:3].isalpha()
    return not first.isascii() and first.isalpha() and first not in BULLETS and first not in _NUMERALS
