"""One piece of a reply's structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["paragraph", "item", "heading", "title", "table", "code", "rule"]
Marker = Literal["", "bullet", "number", "letter"]


@dataclass(slots=True)
class Block:
    """One piece of a reply; ``line`` and ``end`` are line numbers from 0, the end not included.

    ``text`` is the Markdown between the markers (of code, as it stands; of a table, its cells line by line). ``level``:
    a heading's level or an item's depth, both from 1. ``marker``: what opens an item. ``first``: a blank line, a block
    of another kind than prose, or nothing stands before. ``rows`` and ``columns`` are those of a table, without its
    header and rows of empty cells.
    """

    kind: Kind
    text: str
    line: int
    end: int
    level: int = 0
    marker: Marker = ""
    first: bool = True
    rows: int = 0
    columns: int = 0
